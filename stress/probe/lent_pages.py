"""Which positions of an allocation's answer start a new page: host arithmetic on lengths, O(pages).

An answer lists slots in the order of the batch, request by request; only a new page's first slot tells its id.

    request 0            request 1
    |..hh|xxxx|xx        |yyyy|y          h: rest of the last page, x and y: new pages
          ^    ^           ^    ^         the positions returned
"""

from __future__ import annotations


def host_lengths(lengths) -> list[int]:
    """Lengths [requests] that are on the host already."""
    return lengths.tolist() if hasattr(lengths, "tolist") else [int(length) for length in lengths]


def page_starts_of_extend(prefixes, seqs, page_size: int) -> slice | list[int]:
    """Positions in the answer of `alloc_extend` for tokens [prefix, seq) of each request; lengths on the host."""
    prefix = host_lengths(prefixes)
    if len(prefix) == 1:
        return slice(-prefix[0] % page_size, None, page_size)
    seq = host_lengths(seqs)
    starts: list[int] = []
    before = 0
    for lo, hi in zip(prefix, seq, strict=True):
        starts.extend(range(before + -lo % page_size, before + hi - lo, page_size))
        before += hi - lo
    return starts


def page_starts_of_decode(seq: list[int], page_size: int) -> list[int]:
    """Rows of `alloc_decode`'s answer that open a page; `seq` counts the new token."""
    return [row for row, length in enumerate(seq) if (length - 1) % page_size == 0]


def segment_parts(start_pos: int, page_size: int) -> tuple[slice, ...]:
    """Slices of a segment's slots that take one slot a page; the segment's first token is at `start_pos`."""
    rest = -start_pos % page_size
    whole = slice(rest, None, page_size)
    return (whole,) if rest == 0 else (slice(0, 1), whole)
