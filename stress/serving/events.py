"""At which decode turn a request needs anything: slots, a window eviction, its cancel, its end.

Between two such turns decoding changes nothing but counts, so the loop skips the turns in one stride. All times are
the rank's decode turns; a request that started decoding at turn z has taken t - z steps when turn t begins.
"""

from __future__ import annotations

import heapq
from typing import NamedTuple

from stress.serving.request import CANCEL_DECODE, CANCEL_RESULTS, LiveRequest

NEVER = 1 << 62


class Due(NamedTuple):
    """Steps since turn_zero at which each thing is due: before the next step, or (end, cut) in its results."""

    reserve: int
    window: int
    cancel: int  # before the step, outside result processing
    cut: int  # cancelled inside result processing
    end: int

    def next_turn(self, turn_zero: int) -> int:
        before = min(self.reserve, self.window, self.cancel)
        return turn_zero + min(before, min(self.cut, self.end) - 1)


def due(request: LiveRequest, ahead: int, window_at: int) -> Due:
    """`ahead`: slots kept ahead of what is committed. `window_at`: committed tokens of the next window eviction."""
    committed = request.target  # at turn_zero
    end = len(request.cumulative)
    reserve = request.steps_to(request.allocated - ahead - committed + 1)
    window = request.steps_to(window_at - committed)
    cancel = cut = NEVER
    if request.plan.cancel in (CANCEL_DECODE, CANCEL_RESULTS):
        # produced is 1 + what decoding has given; a client leaves before the end at the latest.
        at = min(request.steps_to(request.plan.cancel_tokens - request.produced), end)
        if request.plan.cancel == CANCEL_DECODE:
            cancel = min(at, end - 1)
        else:
            cut = max(1, at)
    return Due(reserve if reserve < end else NEVER, window if window < end else NEVER, cancel, cut, end)


class TurnQueue:
    """The next turn of each decoding request; entries of an older epoch are dropped when they come up."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, int, LiveRequest]] = []

    def push(self, turn: int, request: LiveRequest) -> None:
        heapq.heappush(self._heap, (turn, request.rid, request.epoch, request))

    def next_turn(self) -> int:
        self._drop_outdated()
        return self._heap[0][0] if self._heap else NEVER

    def pop(self, turn: int) -> list[LiveRequest]:
        """Requests that are due at this turn, in order of id."""
        due_now = []
        while self.next_turn() <= turn:
            due_now.append(heapq.heappop(self._heap)[3])
        return due_now

    def _drop_outdated(self) -> None:
        while self._heap and self._heap[0][2] != self._heap[0][3].epoch:
            heapq.heappop(self._heap)
