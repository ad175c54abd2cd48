"""Which positions of an allocation's answer start a new page: host arithmetic on lengths, O(pages).

An answer lists slots in the order of the batch, request by request; only a new page's first slot tells its id.

    request 0            request 1
    |..hh|xxxx|xx        |yyyy|y          h: rest of the last page, x and y: new pages
          ^    ^           ^    ^         the positions returned
"""

from __future__ import annotations


class PageStarts:
    """Where the answers of lending methods start pages. Both pools of a hybrid are asked with the same lengths in one
    call: these are read once."""

    def __init__(self) -> None:
        self._known: tuple | None = None

    def forget(self) -> None:
        """Another call begins: lengths may have been written to since."""
        self._known = None

    def of(self, page_size: int, method: str, args: tuple, kwargs: dict) -> slice | list[int]:
        """Positions in the answer of `method`, from the lengths that its caller has on the host."""
        if method == "alloc":
            return slice(None, None, page_size)
        extends = method == "alloc_extend"
        prefix = None
        if extends:
            prefix = kwargs["prefix_lens_cpu"] if "prefix_lens_cpu" in kwargs else args[1]
        seq = kwargs["seq_lens_cpu"] if "seq_lens_cpu" in kwargs else args[3 if extends else 1]
        known = self._known
        if known is not None and known[0] is prefix and known[1] is seq and known[2] == page_size:
            return known[3]
        if extends:
            starts = page_starts_of_extend(prefix, seq, page_size)
        else:
            starts = page_starts_of_decode(host_lengths(seq), page_size)
        self._known = prefix, seq, page_size, starts
        return starts


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
