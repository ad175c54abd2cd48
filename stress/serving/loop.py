"""Rank-local continuous batching in virtual time, as upstream's scheduler orders it: prefill before decode.

A turn is a prefill batch or one decode step of everything that runs; decode turns in which nobody needs anything
are skipped in one stride and issue no operation. A blocked queue is asked again when something has been given
back. Virtual time is integer microseconds; the loop never looks at a clock and never sees a page id.
"""

from __future__ import annotations

from stress.serving.acceptance import Acceptance
from stress.serving.decode import Decode
from stress.serving.events import NEVER
from stress.serving.prefill import Prefill
from stress.serving.state import ServingState


class ServingLoop:
    def __init__(self, state: ServingState, acceptance: Acceptance) -> None:
        self.state = state
        self.decode = Decode(state, acceptance)
        self.prefill = Prefill(state, self.decode.start)

    def run_until(self, boundary_us: int) -> bool:
        """Turns until virtual time reaches the boundary; True when every request has ended."""
        return self._run(boundary_us, boundary_us, NEVER)

    def run_step(self) -> bool:
        """One turn that takes time, a prefill batch or a single decode step; True when every request has ended.

        A rank that can do nothing waits for its next arrival or transfer, no longer than a decode step takes.
        """
        waited_us = self.state.now_us + self.state.timing.step_us
        return self._run(self.state.now_us + 1, waited_us, waited_us)

    def _run(self, boundary_us: int, arrival_us_max: int, transfer_us_max: int) -> bool:
        """Turns until the boundary; a wait for an arrival or for a transfer ends at its limit."""
        state = self.state
        while state.now_us < boundary_us:
            state.take_arrivals()
            if state.landing:
                self.prefill.land(transfer_us_max)
            elif state.chunked or state.admits:
                self.prefill.turn()
            elif state.decoding:
                self.decode.turns(boundary_us)
            elif state.waiting and not state.may_admit(state.waiting[0].rid):
                state.set_now(state.now_us + 1)  # the lookup is agreed at the exchange that ends this step
            elif state.waiting:
                self._unblock(transfer_us_max)
            else:
                next_us = state.arrivals.next_us()
                if next_us is None:
                    return True
                state.set_now(min(next_us, arrival_us_max))
        return False

    def _unblock(self, transfer_us_max: int) -> None:
        """The queue is blocked and nothing runs: wait for a transfer that holds pages, or give the request up."""
        state = self.state
        due_us = state.engine.pending_us()
        if due_us is not None:
            state.set_now(max(state.now_us, min(due_us, transfer_us_max)))
            state.poll()
            return
        request = state.waiting.popleft()
        room = state.engine.room()
        state.give_up(request, f"needs {request.target} tokens of KV; an idle rank has room for {room.full}")
        state.blocked = False
