"""Block ids of a row as the readers pack them: what it shares with the row before, and runs of what is new."""

from __future__ import annotations


def common_prefix(a: list[int], b: list[int]) -> int:
    """Length of the common prefix, by halving (lists compare in C)."""
    lo, hi = 0, min(len(a), len(b))
    while lo < hi:
        mid = (lo + hi + 1) // 2
        if a[lo:mid] == b[lo:mid]:
            lo = mid
        else:
            hi = mid - 1
    return lo


def runs(ids: list[int], lo: int) -> list[tuple[int, int]]:
    """Runs (start, count) of consecutive ids from ids[lo:]."""
    out: list[tuple[int, int]] = []
    start, last = 0, -2
    for one in ids[lo:] if lo else ids:
        if one != last + 1:
            if last != -2:
                out.append((start, last - start + 1))
            start = one
        last = one
    if last != -2:
        out.append((start, last - start + 1))
    return out


def first_blocks(new: list[tuple[int, int]], blocks: int) -> list[tuple[int, int]]:
    """The first `blocks` ids of runs, as runs."""
    out = []
    for start, count in new:
        if blocks <= 0:
            break
        out.append((start, min(count, blocks)))
        blocks -= count
    return out
