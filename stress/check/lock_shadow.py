"""Which locks hold which pages, by the events so far: what a lock took, its unlock gives up for good.

A lock of a component that is reached through an edge stands under its target pool, with source pages. Judges nothing.
"""

from __future__ import annotations

import numpy as np

from stress.check.event import Event
from stress.check.pool_shadow import EdgeShadow, PoolShadow

_NOTHING = np.empty(0, dtype=np.int64)


class Locks:
    """`held`: source pages of each lock that is held, int64[], by (pool, token)."""

    def __init__(self, pools: dict[str, PoolShadow], edge_into: dict[str, EdgeShadow]) -> None:
        self.held: dict[tuple[str, int], np.ndarray] = {}
        self._pools = pools
        self._edge_into = edge_into
        self._holders: dict[str, np.ndarray] = {}
        self._cells: dict[str, memoryview] = {}

    def holders_in(self, pool: str) -> np.ndarray:
        """How many locks hold each source page, int32[] by page id; a component's stand under its own pool's name."""
        holders = self._holders.get(pool)
        if holders is None:
            edge = self._edge_into.get(pool)
            source = self._pools[pool] if edge is None else edge.source
            holders = self._holders[pool] = np.zeros(len(source.on_loan), dtype=np.int32)
        return holders

    def cells_in(self, pool: str) -> memoryview:
        """`holders_in`, page by page."""
        cells = self._cells.get(pool)
        if cells is None:
            cells = self._cells[pool] = memoryview(self.holders_in(pool))
        return cells

    def take(self, event: Event) -> None:
        """A LOCK."""
        self.held[event.pool, event.token] = event.pages
        self.holders_in(event.pool)[event.pages] += 1

    def give_up(self, event: Event) -> None:
        """An UNLOCK: what the lock took goes, whatever the target gave up: that is between the holder and the rule."""
        taken = self.held.pop((event.pool, event.token), _NOTHING)
        self.holders_in(event.pool)[taken] -= 1
