"""Sampled stamps of single pages on a host, cell by cell: a numpy call on one page costs more than the page.

Two cells a page, as `SampledStamps` has them: its first token's stamp, and its last written one's as if that were the
page's last. Writes what the arrays would be written with, and nothing where an id has no place in them.
"""

from __future__ import annotations

import numpy as np

_HALF = 1 << 63


def wrapped(number: int) -> int:
    """As int64 arithmetic has it."""
    return (number + _HALF) % (2 * _HALF) - _HALF


class StampCells:
    """Views of `stamps` and `labels`, int64[pages, 2].

    `from_end[n]`: what the stamp of a page's n-th token is more than one at the page's end.
    """

    def __init__(self, stamps: np.ndarray, labels: np.ndarray, page_size: int, from_end: list[int]) -> None:
        self.stamps, self.labels = (memoryview(part.reshape(-1)) for part in (stamps, labels))
        self._size = page_size
        self._pages = len(stamps)
        self._from_end = from_end

    def lend(self, pages: list[int], unwritten: int) -> bool:
        """The pages are lent anew; False: one has no place here."""
        stamps, size = self.stamps, self._pages
        for page in pages:
            if not 0 <= page < size:
                return False
            stamps[2 * page] = stamps[2 * page + 1] = unwritten
        return True

    def begins_with(self, key: int, page: int, offset: int = 0, entries: memoryview | None = None) -> bool:
        """Whether the page in which the token at this offset of `page` lies begins with the stamp `key`."""
        if entries is not None:
            slot = page * self._size + offset
            if not 0 <= slot < len(entries):
                return False
            page = entries[slot] // self._size
        return 0 <= page < self._pages and self.stamps[2 * page] == key

    def write(
        self, page: int, key: int, label: int, begin: int, end: int, entries: memoryview | None = None
    ) -> bool:
        """Tokens [begin, end) of a page whose first token has `label`; False: a slot has no place here.

        `entries`: this pool's slots by those of the page's pool; None: it is the same pool.
        """
        size, stamps, labels = self._size, self.stamps, self.labels
        first = last = page
        if entries is not None:
            slot = page * size
            if not 0 <= slot <= len(entries) - size:
                return False
            first, last = entries[slot + begin] // size, entries[slot + end - 1] // size
        if not (0 <= first < self._pages and 0 <= last < self._pages):
            return False
        if not begin:
            stamps[2 * first], labels[2 * first] = key, label
        at = 2 * last + 1
        stamps[at] = key if end == size else wrapped(key + self._from_end[end])
        labels[at] = label + end - 1
        return True
