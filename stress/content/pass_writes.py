"""What a forward pass writes: stamps for the positions that a commit commits, in each pool.

Few pages on a host are written cell by cell, all else by the stamps' arrays. Of a request that nobody watches nobody
reads what is last in a page before the page is full: a decode inside a page that is its own, by the stamp of the page's
first token, is left out then. One that lands in another's page is written.
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
        # Without cells it costs as much to ask whose page it is as to write.
        self._closely = closely if pool.cells is not None else 1

    def write(
        self, rid: int, lo: int, hi: int, table: np.ndarray, keys: np.ndarray, *, windowed: bool
    ) -> None:
        """Positions [lo, hi), hi > lo, of a request whose row has the pages `table` under `keys`, int64[n] each."""
        size = self._page_size
        if rid % self._closely and self._goes_unread(lo, hi, table, keys, windowed):
            return
        if hi - lo <= FEW * size and self._write_few(rid, lo, hi, table, keys, windowed):
            return
        span = span_of(rid, table, keys, lo, hi, size)
        self._pool.write(span)
        if windowed:
            self._window.write(span, self._watch.mapping)

    def _goes_unread(self, lo: int, hi: int, table: np.ndarray, keys: np.ndarray, windowed: bool) -> bool:
        """Whether [lo, hi) lies inside a page, in each pool one that the request's own token begins."""
        place, begin = divmod(lo, self._page_size)
        if not begin or begin + hi - lo >= self._page_size:
            return False
        page, key = table.item(place), keys.item(place)
        if not self._pool.cells.begins_with(key, page):
            return False
        if not windowed:
            return True
        entries = self._window.arrays.cells(self._watch.mapping)
        return self._window.cells.begins_with(key, page, begin, entries)

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
