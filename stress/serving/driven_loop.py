"""The serving loop of an engine whose own scheduler decides: requests in, the forward pass played, clients leave.

A turn is one step of the engine: schedule, the pass (virtual time goes by), commit, what was sampled. Nothing is
skipped, for whether anybody needs anything is the engine's to know. Requests are the engine's from their arrival on;
`waiting` and `decoding` of the state say which of them run. Transfers end in an update; where nothing
is to run one is made for them alone, also when no request is left. When clients leave: stress.serving.leaving.
"""

from __future__ import annotations

from itertools import islice

from stress.engine.scheduling import Row, Step
from stress.serving.acceptance import Acceptance
from stress.serving.leaving import Leaving
from stress.serving.priority import Priorities
from stress.serving.request import LiveRequest
from stress.serving.state import ServingState
from stress.step_plan import Mode


class DrivenLoop:
    """`page_size` of the state's engine counts chunks that cross a page's edge."""

    def __init__(self, state: ServingState, acceptance: Acceptance, priorities: Priorities) -> None:
        self.state = state
        self.acceptance = acceptance
        self.priorities = priorities
        self.leaving = Leaving(state)
        self._live: dict[int, LiveRequest] = {}

    def run_until(self, boundary_us: int) -> bool:
        """Steps until virtual time reaches the boundary; True when every request has ended."""
        return self._run(boundary_us, boundary_us)

    def run_step(self) -> bool:
        """One step; a rank without work waits for its next arrival, no longer than a step takes. True: all ended."""
        return self._run(self.state.now_us + 1, self.state.now_us + self.state.timing.step_us)

    def _run(self, boundary_us: int, idle_us_max: int) -> bool:
        state = self.state
        while state.now_us < boundary_us:
            self._take_arrivals()
            due_us, next_us = state.engine.pending_us(), state.arrivals.next_us()
            if self._live or (due_us is not None and due_us <= state.now_us):
                self._step(idle_us_max)
                continue
            coming = [us for us in (due_us, next_us) if us is not None]
            if not coming:
                return True
            state.set_now(max(state.now_us, min(*coming, idle_us_max)))
        return False

    def _take_arrivals(self) -> None:
        state = self.state
        known = len(state.waiting)
        state.take_arrivals()
        for request in list(islice(state.waiting, known, None)):
            self._live[request.rid] = request
            state.engine.submit(request.rid, self.priorities.of(request.rid))
            if self.leaving.at_arrival(request):
                self._leave(request)

    # A step

    def _step(self, idle_us_max: int) -> None:
        state = self.state
        step = state.engine.schedule()
        self._take_places(step)
        if not step.rows and not state.decoding:
            if not self._tell_ends():
                self._nothing_runs(step, idle_us_max)
            return
        prefill = sum(row.tokens for row in step.rows if self._prefills(row))
        mode = Mode.EXTEND if prefill else Mode.DECODE
        state.took_turn(mode, extend_tokens=prefill, decode_requests=len(step.rows))
        state.set_now(state.now_us + state.timing.prefill_us(prefill))
        if step.rows:
            self._results(step.rows)
        else:
            self._tell_ends()
        for request in self.leaving.between_steps():
            self._leave(request)

    def _tell_ends(self) -> bool:
        """Nothing is to be computed: whether an update was due for transfers alone."""
        due_us = self.state.engine.pending_us()
        if due_us is None or due_us > self.state.now_us:
            return False
        self._update([])
        return True

    def _update(self, rows: list[tuple[int, int]]) -> None:
        """What was sampled; who has ended by that, or by what could not be loaded for it. Any other end before the
        last token is the target's error."""
        state = self.state
        for rid in state.engine.update(rows):
            request = self._live[rid]
            self._forget(request)
            if not request.left_to_produce:
                state.end(request, "finished")
            elif state.engine.failures_told():
                state.end(request, "cancelled")
            else:
                state.give_up(
                    request, f"was ended by the target {request.left_to_produce} tokens before its end"
                )

    def _take_places(self, step: Step) -> None:
        """Who runs now, and who has to come again."""
        state = self.state
        for row in step.rows:
            request = self._live[row.rid]
            if row.rid not in state.decoding:
                state.waiting.remove(request)
                state.decoding[row.rid] = request
            request.position = row.start
        for rid in step.preempted:
            request = state.decoding.pop(rid, None)
            if request is None:
                continue  # it had not run before this step
            state.marks["retracted"] += 1
            request.position = 0
            request.waiting_since_us = state.now_us
            state.waiting.appendleft(request)
            if self.leaving.when_preempted(request):
                self._leave(request)

    def _nothing_runs(self, step: Step, idle_us_max: int) -> None:
        """A request that has just been preempted with nobody beside it, or one that is refused an idle rank, will
        never get on; unless a transfer holds pages. The next step may admit what waits behind it."""
        state = self.state
        due_us, next_us = state.engine.pending_us(), state.arrivals.next_us()
        if due_us is not None:
            soonest_us = due_us if next_us is None else min(due_us, next_us)
            state.set_now(max(state.now_us + 1, min(soonest_us, idle_us_max)))
        elif (lost := self._waits_in_vain()) is not None:
            self._give_up(lost, "waits for a load whose end nobody has told")
        elif len(step.preempted) == 1 and step.preempted[0] in self._live:
            request = self._live[step.preempted[0]]
            self._give_up(request, f"has no room to decode beyond {request.known} tokens on an idle rank")
        elif state.waiting and not step.preempted:
            request = min(state.waiting, key=lambda one: (self.priorities.of(one.rid), one.rid))
            self._give_up(request, f"with {request.known} tokens is not scheduled on an idle rank")
        else:
            state.set_now(state.now_us + state.timing.step_us)

    def _waits_in_vain(self) -> LiveRequest | None:
        """The first that waits for a load, where no transfer's end is told any more."""
        of = self.state.engine.transfer_of
        return next((one for one in self.state.waiting if of and of(one.rid) == "load"), None)

    def _give_up(self, request: LiveRequest, why: str) -> None:
        self.state.engine.abort(request.rid)
        self._forget(request)
        self.state.give_up(request, why)

    def _prefills(self, row: Row) -> bool:
        return row.tokens - row.drafts > 1 or not row.samples

    def _results(self, rows: tuple[Row, ...]) -> None:
        """The pass has run: what it wrote, who left meanwhile, what was sampled, who has ended."""
        state = self.state
        size = state.engine.page_size
        sampled = [(row.rid, self._sampled(row)) for row in rows]
        written = []
        for row, (_, tokens) in zip(rows, sampled, strict=True):
            accepted = row.tokens - row.drafts + max(0, tokens - 1)
            written.append((row.rid, accepted))
            self._live[row.rid].position = row.start + accepted
            if self._prefills(row) and row.start // size != (row.start + accepted - 1) // size:
                state.marks["chunk_crossed_page"] += 1
        state.engine.commit(written)
        for rid, tokens in sampled:
            if self.leaving.in_results(self._live[rid], tokens):
                self._leave(self._live[rid])
        staying = [(rid, tokens) for rid, tokens in sampled if rid in self._live]
        for rid, tokens in staying:
            self._live[rid].produced += tokens
        self._update(staying)

    def _sampled(self, row: Row) -> int:
        """Tokens that the row's pass yields: as many drafts are accepted as the plan says, if it has so many."""
        request = self._live[row.rid]
        if not row.samples:
            return 0
        return min(self._accepted(request) if row.drafts else 1, row.drafts + 1, request.left_to_produce)

    def _accepted(self, request: LiveRequest) -> int:
        """Tokens of the request's next step with drafts; its draws go on where the last step left them."""
        if request.synced >= len(request.cumulative):
            request.steps_before += request.synced
            request.synced = 0
            request.cumulative = self.acceptance.cumulative(
                request.rid, request.steps_before, request.left_to_produce
            )
        before = request.tokens_after(request.synced)
        request.synced += 1
        return request.tokens_after(request.synced) - before

    # Requests that are no more

    def _leave(self, request: LiveRequest) -> None:
        self.state.marks[self.leaving.mark(request)] += 1
        self._forget(request)
        self.state.abort(request)

    def _forget(self, request: LiveRequest) -> None:
        del self._live[request.rid]
        if request.rid not in self.state.decoding:
            self.state.waiting.remove(request)
