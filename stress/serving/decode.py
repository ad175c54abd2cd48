"""Decode turns: one step of everything that runs, with drafts; quiet turns are skipped in one stride.

A busy turn: clients that leave, window evictions in a free group of their own, one reserve for all that run short,
the forward pass, results in a free group where a request ends. Retraction comes only when slots are short after
eviction.
"""

from __future__ import annotations

from stress.serving.acceptance import Acceptance
from stress.serving.events import NEVER, Due, TurnQueue, due
from stress.serving.request import LiveRequest
from stress.serving.state import ServingState
from stress.step_plan import Mode


class Decode:
    def __init__(self, state: ServingState, acceptance: Acceptance) -> None:
        self.state = state
        self.acceptance = acceptance
        self.queue = TurnQueue()

    def start(self, request: LiveRequest) -> None:
        """Decoding (re)starts: how many tokens each of its steps will yield is drawn now."""
        request.turn_zero = self.state.decode_turn
        request.synced = 0
        remaining = request.plan.output_tokens - request.produced
        request.cumulative = self.acceptance.cumulative(request.rid, request.steps_before, remaining)
        self.state.decoding[request.rid] = request
        self._schedule(request)

    def _due(self, request: LiveRequest) -> Due:
        return due(
            request, self.state.timing.slots_ahead, self.state.engine.next_window_eviction(request.rid)
        )

    def _schedule(self, request: LiveRequest) -> None:
        self.queue.push(self._due(request).next_turn(request.turn_zero), request)

    def turns(self, boundary_us: int) -> None:
        """One busy turn, or a stride of quiet ones: to the next busy turn, arrival or boundary."""
        quiet = self.queue.next_turn() - self.state.decode_turn
        next_us = self.state.arrivals.next_us()
        for limit_us in (boundary_us, boundary_us if next_us is None else next_us):
            quiet = min(quiet, -(-(limit_us - self.state.now_us) // self.state.timing.step_us))
        if quiet > 0:
            self.state.took_turn(Mode.DECODE, decode_requests=len(self.state.decoding))
            self.state.decode_turn += quiet
            self.state.set_now(self.state.now_us + quiet * self.state.timing.step_us)
            return
        self._busy_turn()

    def _busy_turn(self) -> None:
        self.state.poll()
        turn = self.state.decode_turn
        requests = [(request, self._due(request)) for request in self.queue.pop(turn)]
        for request, what in requests:
            if what.cancel <= turn - request.turn_zero:
                self.state.sync([request], turn)
                self.state.abort(request)
        live = [(request, what) for request, what in requests if request.rid in self.state.decoding]
        self._before_step(live, turn)
        self.state.took_turn(Mode.DECODE, decode_requests=len(self.state.decoding))
        self.state.decode_turn += 1
        self.state.set_now(self.state.now_us + self.state.timing.step_us)
        self.state.poll()
        if not self._decode_results(live, turn):
            self.state.engine.end_step()
        for request, _ in live:
            if request.rid in self.state.decoding:
                self._schedule(request)

    def _before_step(self, live: list[tuple[LiveRequest, Due]], turn: int) -> None:
        """Window evictions, then slots; retraction only when slots are short after eviction."""
        sliding = [r for r, what in live if what.window <= turn - r.turn_zero]
        short = [r for r, what in live if what.reserve <= turn - r.turn_zero]
        self.state.sync(dict.fromkeys([*sliding, *short]), turn)
        if sliding:
            self.state.engine.evict_windows([request.rid for request in sliding])
        ahead = self.state.timing.slots_ahead
        while short and not self.state.engine.reserve([(request.rid, ahead) for request in short]):
            victim = self.state.victim()
            del self.state.decoding[victim.rid]
            if self.state.is_idle():
                self.state.engine.retract(victim.rid)
                self.state.give_up(
                    victim, f"has no room to decode beyond {victim.allocated} tokens on an idle rank"
                )
            else:
                self.state.retract(victim)
                self.state.blocked = True  # one that is given up leaves room, and the queue is asked again
            short = [request for request in short if request.rid in self.state.decoding]
        page_size = self.state.engine.page_size
        for request in short:
            committed = request.target + request.synced
            request.allocated = -(-(committed + ahead) // page_size) * page_size

    def _decode_results(self, live: list[tuple[LiveRequest, Due]], turn: int) -> bool:
        """Ends what ends in this step's results; False if nothing does and no free group was opened."""
        ending = [
            (request, what)
            for request, what in live
            if request.rid in self.state.decoding and turn + 1 - request.turn_zero >= min(what.end, what.cut)
        ]
        if not ending:
            return False
        self.state.engine.results_begin()
        self.state.sync([request for request, _ in ending], turn + 1)
        for request, what in ending:
            if what.cut < NEVER and what.cut <= what.end:
                self.state.abort(request)
            else:
                self.state.finish(request)
        self.state.engine.results_end()
        return True
