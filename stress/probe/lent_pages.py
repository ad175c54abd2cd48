"""Which positions of an allocation's answer start a new page: host arithmetic on lengths, O(pages).

An answer lists slots in the order of the batch, request by request; only a new page's first slot tells its id.

    request 0            request 1
    |..hh|xxxx|xx        |yyyy|y          h: rest of the last page, x and y: new pages
          ^    ^           ^    ^         the positions returned
"""

from __future__ import annotations

import numpy as np


def host_lengths(lengths) -> np.ndarray:
    """int64[requests] of lengths that are on the host already."""
    return np.asarray(lengths, dtype=np.int64)


def page_starts_of_extend(prefix: np.ndarray, seq: np.ndarray, page_size: int) -> slice | np.ndarray:
    """Positions in the answer of `alloc_extend` for tokens [prefix, seq) of each request."""
    if len(prefix) == 1:
        return slice(int(-prefix[0] % page_size), None, page_size)
    first = -prefix % page_size
    tokens = seq - prefix
    pages = np.maximum(-(-(tokens - first) // page_size), 0)
    start = np.cumsum(tokens) - tokens + first
    order = np.arange(int(pages.sum())) - np.repeat(np.cumsum(pages) - pages, pages)
    return np.repeat(start, pages) + order * page_size


def page_starts_of_decode(seq: np.ndarray, page_size: int) -> np.ndarray:
    """Rows of `alloc_decode`'s answer that open a page; `seq` counts the new token."""
    return np.flatnonzero((seq - 1) % page_size == 0)


def segment_parts(start_pos: int, page_size: int) -> tuple[slice, ...]:
    """Slices of a segment's slots that take one slot a page; the segment's first token is at `start_pos`."""
    rest = -start_pos % page_size
    whole = slice(rest, None, page_size)
    return (whole,) if rest == 0 else (slice(0, 1), whole)
