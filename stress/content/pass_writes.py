"""What a forward pass writes: stamps for the positions that a commit commits, in each pool.

Few pages on a host are written cell by cell, all else by the stamps' arrays. Of a request that nobody watches nobody
reads what is last in a page before the page is full: a decode inside a page is left out then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from stress.check.slot_label import label_of
from stress.content.span import span_of
from stress.content.stamps import FEW, FullStamps, SampledStamps

if TYPE_CHECKING:  # the probe imports this package
    from stress.probe.allocator_watch import Watch


class PassWrites:
    """`window`: the stamps behind the mapping of `watch`, None: there are none. `closely`: one request in so many is
    watched, by its number."""

    def __init__(
        self,
        pool: FullStamps | SampledStamps,
        window: FullStamps | SampledStamps | None,
        watch: Watch,
        closely: int,
    ) -> None:
        self._pool, self._window, self._watch = pool, window, watch
        self._page_size = pool.page_size
        self._closely = closely if pool.cells is not None else 1

    def write(
        self, rid: int, lo: int, hi: int, table: np.ndarray, keys: np.ndarray, *, windowed: bool
    ) -> None:
        """Positions [lo, hi), hi > lo, of a request whose row has the pages `table` under `keys`, int64[n] each."""
        size = self._page_size
        if rid % self._closely and lo % size and lo % size + hi - lo < size:
            return
        if hi - lo <= FEW * size and self._write_few(rid, lo, hi, table, keys, windowed):
            return
        span = span_of(rid, table, keys, lo, hi, size)
        self._pool.write(span)
        if windowed:
            self._window.write(span, self._watch.mapping)

    def _write_few(
        self, rid: int, lo: int, hi: int, table: np.ndarray, keys: np.ndarray, windowed: bool
    ) -> bool:
        """Page by page; False: some of it is left to do."""
        size, cells, window_cells, entries = self._page_size, self._pool.cells, None, None
        if cells is None:
            return False
        if windowed:
            window_cells, entries = self._window.cells, self._window.arrays.cells(self._watch.mapping)
        place, begin = divmod(lo, size)
        label = label_of(rid, lo - begin)
        while lo < hi:
            end = min(size, begin + hi - lo)
            page, key = table.item(place), keys.item(place)
            if not cells.write(page, key, label, begin, end):
                return False
            if windowed and not window_cells.write(page, key, label, begin, end, entries):
                return False
            lo, place, label, begin = lo + end - begin, place + 1, label + size, 0
        return True
