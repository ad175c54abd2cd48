"""Ranges of pages `[low, high)` in ascending order: from runs of flags, and joined where they touch."""

from __future__ import annotations

from collections.abc import Iterator

PageRange = tuple[int, int]


def runs(flags: bytes, low: int, high: int) -> Iterator[PageRange]:
    """Maximal runs of equal flags in [low, high), in order."""
    while low < high:
        stop = flags.find(not flags[low], low, high)
        stop = high if stop < 0 else stop
        yield low, stop
        low = stop


def joined_ranges(ranges: list[PageRange]) -> list[PageRange]:
    """Ascending ranges with those that touch made one."""
    joined: list[PageRange] = []
    for low, high in ranges:
        if joined and joined[-1][1] == low:
            joined[-1] = (joined[-1][0], high)
        else:
            joined.append((low, high))
    return joined
