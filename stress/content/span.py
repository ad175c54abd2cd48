"""A run of token positions in pages, as a pass writes or reads it: which pages, and whose tokens are in them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from stress.check.slot_label import label_of

if TYPE_CHECKING:  # the probe imports this package
    from stress.probe.linker_watch import Moved


class Span(NamedTuple):
    """pages int64[n]: of the pool that holds every position. keys int64[n]: what names the prefix to each page's end.

    begin: offset of the first token in the first page; end: tokens of the last page up to which it goes. `labels`
    int64[n], of each page's first token; None: the pages follow each other from place `first` of request `rid` on.
    """

    pages: np.ndarray
    keys: np.ndarray
    begin: int
    end: int
    rid: int
    first: int
    labels: np.ndarray | None = None

    def page_labels(self, page_size: int) -> np.ndarray:
        """int64[n]: the label of each page's first token."""
        if self.labels is not None:
            return self.labels
        start = label_of(self.rid, self.first * page_size)
        return np.arange(start, start + len(self.pages) * page_size, page_size)


def span_of(rid: int, table: np.ndarray, keys: np.ndarray, lo: int, hi: int, page_size: int) -> Span:
    """Positions [lo, hi), hi > lo, of a request whose row has the pages `table` under `keys`."""
    first, end = lo // page_size, -(-hi // page_size)
    begin, last = lo - first * page_size, hi - (end - 1) * page_size
    return Span(table[first:end], keys[first:end], begin, last, rid, first)


def span_of_load(
    transfer: Moved, table: np.ndarray, keys: np.ndarray | None, page_size: int, *, named: bool
) -> Span | None:
    """What the pages of a load shall hold; None: their request has left, and nobody knows what they are.

    `table`, `keys`: the request's row and its keys, None: it is unknown. `named`: the store's keys are the pages' own.
    """
    pages, rid = transfer.pages, transfer.owner
    place = np.flatnonzero(table == pages[0])
    first = int(place[0]) if len(place) else 0
    if named:
        return Span(pages, transfer.keys, 0, page_size, max(rid, 0), first)
    if keys is None or not len(place):
        return None
    return Span(pages, keys[first : first + len(pages)], 0, page_size, rid, first)
