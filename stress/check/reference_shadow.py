"""How many references to each page there must be, in pools whose pages are shared by count: by the events so far.

Who takes a page takes a reference, and gives it up once. With the last one the page is asked back: it must then come,
and no other must. A page that comes without that is judged by what the tables and transfers say. Judges nothing.
"""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace

from stress.check.event import Event
from stress.check.pool_shadow import PoolShadow
from stress.check.table_change import ONCE


class References:
    """`counts(pool)`: int32[pages] by page id. Pools that no REF has named have none."""

    def __init__(self, pools: dict[str, PoolShadow]) -> None:
        self._pools = pools
        self._counts: dict[str, np.ndarray] = {}
        # By pool: pages whose references, or holders, may have changed in the operation at hand.
        self.touched: dict[str, list[np.ndarray]] = {}

    def counts(self, pool: str) -> np.ndarray | None:
        """None: the pages of this pool are not shared by count."""
        return self._counts.get(pool)

    def touch(self, pool: str, pages: np.ndarray) -> None:
        """These pages have another holder, or one less; of a pool that counts none nothing is kept."""
        if pool in self._counts:
            self.touched.setdefault(pool, []).append(pages)

    def take(self, event: Event) -> None:
        """REF: of a page that is named twice each counts."""
        pool = self._pools[event.pool]
        counts = self._counts.get(event.pool)
        if counts is None:
            counts = self._counts[event.pool] = np.zeros(len(pool.on_loan), dtype=np.int32)
        pages = pool.inside(event.pages)
        np.add.at(counts, pages, ONCE)
        self.touch(event.pool, pages)

    def give_up(self, event: Event) -> None:
        """UNREF: what has no reference left is asked back; one that nobody held is not counted."""
        pool, counts = self._pools[event.pool], self._counts.get(event.pool)
        if counts is None:
            return
        pages = pool.inside(event.pages)
        np.subtract.at(counts, pages, ONCE)
        self.touch(event.pool, pages)
        named = np.unique(pages)
        last = named[(counts[named] <= 0) & pool.on_loan[named]]
        counts[named] = np.maximum(counts[named], 0)
        if len(last):
            pool.ask(last)
            pool.asking.append(replace(event, pages=last, peers=None))
