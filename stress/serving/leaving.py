"""When clients leave an engine that schedules by itself: in every state that a request of a server can be in.

What a plan's `cancel` says is taken at its first chance, and by halves, so that each state is left by some:

    queue              even requests at their arrival, odd ones while their first pass runs
    prefill, decode    between two steps, when so much is computed; odd ones as soon as their request is preempted, and
                       every fourth as soon as it waits for a load or has pages that are being stored
    results            while the pass runs that yields the token
"""

from __future__ import annotations

from collections.abc import Iterator

from stress.serving.request import (
    CANCEL_DECODE,
    CANCEL_NONE,
    CANCEL_PREFILL,
    CANCEL_QUEUE,
    CANCEL_RESULTS,
    LiveRequest,
)
from stress.serving.state import ServingState


class Leaving:
    """Decides; whoever asks aborts the request."""

    def __init__(self, state: ServingState) -> None:
        self.state = state
        self._preempted: set[int] = set()

    def at_arrival(self, request: LiveRequest) -> bool:
        return request.plan.cancel == CANCEL_QUEUE and not request.rid % 2

    def when_preempted(self, request: LiveRequest) -> bool:
        self._preempted.add(request.rid)
        return _leaves_when_it_can(request, 2)

    def in_results(self, request: LiveRequest, tokens: int) -> bool:
        """Its pass has run, and yields so many tokens."""
        plan = request.plan
        if plan.cancel == CANCEL_QUEUE:
            return True  # the other half, as soon as anything was computed for it
        produced = request.produced + tokens
        return (
            plan.cancel == CANCEL_RESULTS
            and tokens > 0
            and produced >= min(plan.cancel_tokens, plan.output_tokens)
        )

    def between_steps(self) -> Iterator[LiveRequest]:
        state, transfer_of = self.state, self.state.engine.transfer_of
        for request in list(state.decoding.values()):
            if request.plan.cancel == CANCEL_NONE:
                continue
            stored = transfer_of and _leaves_when_it_can(request, 4) and transfer_of(request.rid) == "store"
            if stored or self._is_far_enough(request):
                yield request
        for request in list(state.waiting) if transfer_of else ():
            if _leaves_when_it_can(request, 4) and transfer_of(request.rid) == "load":
                yield request

    def _is_far_enough(self, request: LiveRequest) -> bool:
        plan = request.plan
        if plan.cancel == CANCEL_PREFILL:
            return request.position >= min(plan.cancel_tokens, plan.prompt_tokens)
        # A client leaves before the end at the latest.
        decoded = max(1, min(plan.cancel_tokens, plan.output_tokens - 1))
        return plan.cancel == CANCEL_DECODE and request.produced >= decoded

    def mark(self, request: LiveRequest) -> str:
        """The state that the request leaves in."""
        transfer_of = self.state.engine.transfer_of
        transfer = transfer_of(request.rid) if transfer_of else ""
        if request.rid not in self.state.decoding:
            waits = "aborted_preempted" if request.rid in self._preempted else "aborted_waiting"
            return "aborted_loading" if transfer == "load" else waits
        if transfer == "store":
            return "aborted_storing"
        prefills = request.position < request.plan.prompt_tokens
        return "aborted_prefill" if prefills else "aborted_decode"


def _leaves_when_it_can(request: LiveRequest, one_in: int) -> bool:
    """One in so many of those that are to leave in their prefill or while they decode."""
    return request.plan.cancel in (CANCEL_PREFILL, CANCEL_DECODE) and request.rid % one_in == one_in - 1
