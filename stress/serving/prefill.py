"""A prefill turn: admit, one extend for the batch, the forward pass, results in one free group.

As upstream orders it: a prompt that is cut goes on first in the next turn, the queue is asked first come first
served, and a batch that does not fit although everything evictable went gives up its newest request.
"""

from __future__ import annotations

from collections.abc import Callable

from stress.serving.admission import Batch, kept_back, swa_fits
from stress.serving.request import CANCEL_PREFILL, CANCEL_QUEUE, LiveRequest
from stress.serving.state import ServingState
from stress.step_plan import Mode


class Prefill:
    """`start_decoding` takes a request whose first token is known and that wants more."""

    def __init__(self, state: ServingState, start_decoding: Callable[[LiveRequest], None]) -> None:
        self.state = state
        self._start_decoding = start_decoding

    def turn(self) -> None:
        self.state.poll()
        batch = self._build_batch()
        while batch.rows and not self.state.engine.extend([(r.rid, upto) for r, upto in batch.rows]):
            self._shrink(batch)
        if not batch.rows:
            return
        for request, upto in batch.rows:
            if request.position // batch.page_size != (upto - 1) // batch.page_size:
                self.state.marks["chunk_crossed_page"] += 1
        self.state.took_turn(Mode.EXTEND, extend_tokens=batch.tokens)
        ready_us = max(self.state.engine.loads_due_us(), *(request.ready_us for request, _ in batch.rows))
        self.state.set_now(max(self.state.now_us + self.state.timing.prefill_us(batch.tokens), ready_us))
        self.state.poll()
        if self.state.engine.landed([request.rid for request, _ in batch.rows]):
            self._results(batch)
        else:
            self.state.landing = batch

    def land(self, wait_us_max: int) -> None:
        """The results of a batch that has run, once its loads have ended for all ranks of the group."""
        self.state.poll()
        batch = self.state.landing
        if self.state.engine.landed([request.rid for request, _ in batch.rows]):
            self.state.landing = None
            self._results(batch)
        else:
            due_us = self.state.engine.pending_us()
            wait_us = wait_us_max if due_us is None else min(due_us, wait_us_max)
            self.state.set_now(max(self.state.now_us + 1, wait_us))

    def _results(self, batch: Batch) -> None:
        self._give_back_failed(batch)
        if batch.rows:
            self._prefill_results(batch)
        else:
            self.state.engine.end_step()

    def _build_batch(self) -> Batch:
        batch = Batch(self.state.timing.chunk_tokens, self.state.engine.page_size)
        if self.state.chunked:
            batch.add(self.state.chunked)
            self.state.chunked = None
        while self.state.waiting and not self.state.blocked and batch.has_budget():
            if self.state.running + len(batch.rows) >= self.state.timing.max_running:
                self.state.blocked = True
                break
            request = self.state.waiting[0]
            if not self.state.may_admit(request.rid):
                break
            if self._left_the_queue(request):
                continue
            if not self._admit(request, batch):
                self.state.blocked = True
        return batch

    def _left_the_queue(self, request: LiveRequest) -> bool:
        """Half of the clients that leave in the queue leave before admission; that needs no operation."""
        if request.plan.cancel != CANCEL_QUEUE or request.rid % 2:
            return False
        self.state.waiting.popleft()
        self.state.end(request, "cancelled")
        return True

    def _admit(self, request: LiveRequest, batch: Batch) -> bool:
        idle = not self.state.decoding and not batch.rows
        if not idle and not swa_fits(batch, request, self.state.engine.room().swa):
            return False
        running = [*self.state.decoding.values(), *(r for r, _ in batch.rows)]
        admission = self.state.engine.admit(request.rid, kept_back(batch, running, request))
        if admission is None:
            return False
        self.state.waiting.popleft()
        request.admitted = True
        request.position = request.allocated = admission.cached + admission.loaded
        request.ready_us = admission.ready_us
        if request.plan.cancel == CANCEL_QUEUE:
            # The other half leaves between match and batch: slot and lock are held (sglang#12693, #9817).
            self.state.abort(request)
        else:
            batch.add(request)
        return True

    def _shrink(self, batch: Batch) -> None:
        """The batch does not fit although everything evictable went: drop its newest, else retract a decode."""
        if len(batch.rows) > 1 or not self.state.decoding:
            request, _ = batch.rows.pop()
            self.state.engine.retract(request.rid)
            if not batch.rows and self.state.is_idle():
                self.state.give_up(
                    request, f"has no room for a chunk of its {request.target} tokens on an idle rank"
                )
                return
            self.state.requeue(request, request.target)
        else:
            self.state.retract(self.state.victim())
        self.state.blocked = True

    def _give_back_failed(self, batch: Batch) -> None:
        """Requests whose load failed leave the batch before its results: what it computed for them is worth nothing.

        They come in again at once, and the rest of their prefix is computed. A load that fails again is shorter each
        time, so that ends.
        """
        failed = dict(self.state.engine.failed_loads())
        if not failed:
            return
        leaving = [request for request, _ in batch.rows if request.rid in failed]
        batch.rows = [row for row in batch.rows if row[0].rid not in failed]
        for request in reversed(leaving):
            request.restorable = failed[request.rid]
            self.state.engine.retract(request.rid)
            self.state.requeue(request, request.target)
        self.state.blocked = False

    def _prefill_results(self, batch: Batch) -> None:
        gone: list[LiveRequest] = []
        self.state.engine.results_begin()
        self.state.engine.commit([(request.rid, upto - request.position) for request, upto in batch.rows])
        for request, upto in batch.rows:
            request.position = request.allocated = upto
            if request.left_to_prefill:
                self.state.engine.checkpoint(request.rid)
                self.state.chunked = request
            else:
                self._first_token(request)
            if request.plan.cancel == CANCEL_PREFILL and request.admitted:
                cut = request.plan.cancel_tokens <= upto or not request.left_to_prefill
                gone += [request] if cut else []
        self.state.engine.results_end()
        for request in gone:
            if request is self.state.chunked:
                self.state.chunked = None
            self.state.abort(request)

    def _first_token(self, request: LiveRequest) -> None:
        request.produced += 1
        if request.produced >= request.plan.output_tokens:
            self.state.finish(request)
            return
        self.state.engine.checkpoint(request.rid)
        self._start_decoding(request)
