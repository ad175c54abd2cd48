"""Marks: what a run must have done to mean anything, with how often and where first.

Some marks are read off the events that the rules see; the others are told by the engine and the serving loop through
`add`. `reached` counts by mark, `first` is the operation of the first time. Give `observe` to `Ledger.listen`.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from stress.check.event import ALL_POOLS, EdgeShape, Event, EventKind

# By themselves: up to Python 3.11 a member is looked up on its class at the price of a call.
_GROUP_BEGIN, _GROUP_END, _INTENT = EventKind.GROUP_BEGIN, EventKind.GROUP_END, EventKind.INTENT


class Coverage:
    """Marks of one rank. `on_mark(mark, operation)` is called when a mark is reached for the first time.

    `kinds`: the events that `observe` reads marks from.
    """

    kinds = frozenset({EventKind.GROUP_BEGIN, EventKind.GROUP_END, EventKind.INTENT})

    def __init__(self, edges: tuple[EdgeShape, ...], on_mark: Callable[[str, int], None] | None = None):
        self.reached: dict[str, int] = {}
        self.first: dict[str, int] = {}
        self._on_mark = on_mark
        self._no_peer = {edge.target: edge.no_peer for edge in edges}
        self._open: set[str] = set()

    def add(self, mark: str, operation: int, times: int = 1) -> None:
        """The mark was reached `times` more in this operation; 0 times changes nothing."""
        if times <= 0:
            return
        if mark not in self.reached:
            self.reached[mark] = 0
            self.first[mark] = operation
            if self._on_mark is not None:
                self._on_mark(mark, operation)
        self.reached[mark] += times

    def missing(self, required: list[str]) -> list[str]:
        """Required marks that were not reached, in the order given."""
        return [mark for mark in required if mark not in self.reached]

    def observe(self, event: Event) -> None:
        """Reads the marks that an event shows."""
        kind = event.kind
        if kind is _GROUP_BEGIN:
            self._open.add(event.pool)
        elif kind is _GROUP_END:
            self._open.discard(event.pool)  # a group ends where it began: in one pool, or in all
        elif kind is _INTENT:
            self._asked(event)

    def _asked(self, event: Event) -> None:
        operation, step = event.cause.operation, event.cause.step
        if event.peers is None:
            if step == "cache eviction":
                self.add("full_evicted", operation)
            return
        peers, no_peer = event.peers, self._no_peer[event.pool]
        if type(peers) is list:
            mapped = len(peers) - peers.count(no_peer)
        else:
            mapped = int(np.count_nonzero(peers != no_peer))
        if mapped < len(peers) and (ALL_POOLS in self._open or event.pool in self._open):
            self.add("free_group_with_unmapped", operation)
        if mapped and step == "SWA eviction":
            self.add("swa_evicted", operation)
        elif mapped and step == "window":
            self.add("swa_released_out_of_window", operation)
