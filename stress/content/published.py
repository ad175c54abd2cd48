"""What was published in each page last: the key of the prefix that it ends, and the label of its first token.

The sweep holds the cache's pages against it, and an offload what it stores. A page that was never published is none of
it, and an id that the pool does not have has no place here.
"""

from __future__ import annotations

import numpy as np

from stress.check.masks import all_of
from stress.content.span import Span

_NOTHING = 0  # no key of a page is 0


class Published:
    """Of one pool with `pages` page ids, 0 among them, of `page_size` tokens."""

    def __init__(self, pages: int, page_size: int) -> None:
        self._page_size = page_size
        self._key = np.zeros(pages, dtype=np.int64)
        self._label = np.zeros(pages, dtype=np.int64)

    def record(self, span: Span) -> None:
        """The span's pages, whole ones, hold what it says."""
        pages, keys, labels = span.pages, span.keys, span.page_labels(self._page_size)
        there = self._there(pages)
        if not all_of(there):
            pages, keys, labels = pages[there], keys[there], labels[there]
        self._key[pages] = keys
        self._label[pages] = labels

    def keys(self, pages: np.ndarray) -> np.ndarray:
        """int64[n]: what each of the pages was published under, 0: nothing."""
        return np.where(self._there(pages), self._key.take(pages, mode="clip"), _NOTHING)

    def span(self, pages: np.ndarray, keys: np.ndarray | None = None) -> Span:
        """What int64[n] pages shall hold, by `keys` where the caller knows better; else those published alone."""
        if keys is None:
            keys = self.keys(pages)
            named = keys != _NOTHING
            if not all_of(named):
                pages, keys = pages[named], keys[named]
        return Span(pages, keys, 0, self._page_size, -1, 0, self._label.take(pages, mode="clip"))

    def _there(self, pages: np.ndarray) -> np.ndarray:
        return pages.view(np.uint64) < len(self._key)  # a negative id is a large one there
