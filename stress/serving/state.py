"""What the turns of a rank share: the queue, who runs, virtual time, and how a request ends or steps back.

A request is in exactly one place: not arrived, waiting, chunked (its prefill goes on next turn), landing (its batch
has run and a load of it has not ended for the whole attention-TP group), decoding, or ended. `blocked` says that the
head of the queue was refused and nothing has been given back since.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable

from stress.engine.contract import Engine, RequestSpec
from stress.serving.admission import Batch
from stress.serving.arrivals import Arrivals
from stress.serving.request import LiveRequest, PlannedRequest
from stress.serving.timing import Timing
from stress.step_plan import Mode, StepPlan


class ServingState:
    """`spec_of(rid, prompt_tokens, output_tokens)` gives what the engine must know of a request."""

    def __init__(
        self,
        engine: Engine,
        planned: Iterable[PlannedRequest],
        spec_of: Callable[[int, int, int], RequestSpec],
        timing: Timing,
        on_stuck: Callable[[int, str], None],
    ) -> None:
        self.engine = engine
        self.arrivals = Arrivals(planned)
        self.spec_of = spec_of
        self.timing = timing
        self.on_stuck = on_stuck
        self.now_us = 0
        self.decode_turn = 0
        self.waiting: deque[LiveRequest] = deque()
        self.decoding: dict[int, LiveRequest] = {}
        self.chunked: LiveRequest | None = None
        self.blocked = False
        self.landing: Batch | None = None  # a prefill batch whose loads have not ended for all of the group
        self.may_admit: Callable[[int], bool] = lambda rid: True  # whether the group has agreed on its lookup
        self.counts: Counter[str] = Counter(started=0, finished=0, cancelled=0, stuck=0)
        self.marks: Counter[str] = Counter()
        self.last_end_us = 0
        self._turn = (Mode.IDLE, 0, 0)  # the last one since the last plan

    @property
    def running(self) -> int:
        landing = len(self.landing.rows) if self.landing else 0
        return len(self.decoding) + (self.chunked is not None) + landing

    def oldest_wait_us(self) -> int:
        """How long the request that has waited longest has waited."""
        return self.now_us - min((request.waiting_since_us for request in self.waiting), default=self.now_us)

    def is_idle(self) -> bool:
        """Nothing decodes, nothing is half prefilled, no transfer holds pages: there is nothing to wait for."""
        return not self.decoding and self.chunked is None and self.engine.pending_us() is None

    @property
    def admits(self) -> bool:
        """Whether the head of the queue may be asked for now."""
        return bool(self.waiting) and not self.blocked and self.may_admit(self.waiting[0].rid)

    def set_now(self, now_us: int) -> None:
        self.now_us = self.engine.now_us = now_us

    def took_turn(self, mode: Mode, *, extend_tokens: int = 0, decode_requests: int = 0) -> None:
        """A turn that takes time is under way."""
        self._turn = (mode, extend_tokens, decode_requests)

    def take_plan(self, boundary_us: int) -> StepPlan:
        """What the last turn since the last plan was, for the exchange at the boundary; idle where there was none."""
        turn, self._turn = self._turn, (Mode.IDLE, 0, 0)
        return StepPlan(*turn, max(self.now_us, boundary_us))

    def take_arrivals(self) -> None:
        for request in self.arrivals.take(self.now_us):
            self.counts["started"] += 1
            self.engine.open(self.spec_of(request.rid, request.target, request.plan.output_tokens))
            request.waiting_since_us = self.now_us
            self.waiting.append(request)

    def poll(self) -> None:
        due_us = self.engine.pending_us()
        if due_us is not None and due_us <= self.now_us and self.engine.poll():
            self.blocked = False

    def sync(self, requests: Iterable[LiveRequest], turn: int) -> None:
        """Tells the engine what quiet turns have committed."""
        rows = []
        for request in requests:
            tokens = request.tokens_after(turn - request.turn_zero)
            if tokens > request.synced:
                rows.append((request.rid, tokens - request.synced))
                request.synced = tokens
        if rows:
            self.engine.commit(rows)

    def victim(self) -> LiveRequest:
        """Upstream's choice: the fewest tokens produced, then the longest prompt."""
        return min(self.decoding.values(), key=lambda r: (self._produced(r), -r.plan.prompt_tokens, r.rid))

    def _produced(self, request: LiveRequest) -> int:
        return request.produced + request.tokens_after(self.decode_turn - request.turn_zero)

    def retract(self, victim: LiveRequest) -> None:
        self.marks["retracted"] += 1
        self.sync([victim], self.decode_turn)
        steps = self.decode_turn - victim.turn_zero
        victim.produced += victim.tokens_after(steps)
        victim.steps_before += steps
        self.decoding.pop(victim.rid, None)
        self.engine.retract(victim.rid)
        self.requeue(victim, victim.plan.prompt_tokens + victim.produced)

    def requeue(self, request: LiveRequest, prompt_tokens: int) -> None:
        request.restart(prompt_tokens)
        self.engine.close(request.rid)
        remaining = request.plan.output_tokens - request.produced
        spec = self.spec_of(request.rid, prompt_tokens, remaining)
        self.engine.open(spec._replace(restorable=request.restorable))
        request.waiting_since_us = self.now_us
        self.waiting.appendleft(request)

    def finish(self, request: LiveRequest) -> None:
        self.engine.finish(request.rid)
        self.end(request, "finished")

    def abort(self, request: LiveRequest) -> None:
        self.engine.abort(request.rid)
        self.end(request, "cancelled")

    def give_up(self, request: LiveRequest, why: str) -> None:
        self.on_stuck(request.rid, why)
        self.end(request, "stuck")

    def end(self, request: LiveRequest, how: str) -> None:
        self.counts[how] += 1
        if how == "cancelled":
            self.marks["cancelled"] += 1
        self.decoding.pop(request.rid, None)
        request.epoch += 1
        request.admitted = False
        self.engine.close(request.rid)
        self.blocked = False
        self.last_end_us = self.now_us
        self.arrivals.ended(request.rid, self.now_us)
