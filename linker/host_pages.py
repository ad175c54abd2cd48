"""Pages that a rank keeps in host memory, by page hash: which pools each has, and where their bytes lie.

A transfer's pages arrive as one block of host tensors (None: content is not kept), of which each page is a
position. At most `max_pages` hashes are held; the least recently used goes first, and a block's memory goes with
its last page. Order of use is the order of calls: ranks that make the same calls hold the same pages.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from linker.device_pages import PageBlock


class Run(NamedTuple):
    """Pages [start, stop) of a load that lie one behind the other in a block, from `position` on."""

    block: PageBlock | None
    position: int
    start: int
    stop: int


class HostPages:
    def __init__(self, max_pages: int) -> None:
        self.max_pages = max_pages
        self._pages: OrderedDict[str, dict[str, tuple[PageBlock | None, int]]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._pages)

    def put(self, parts: Sequence[tuple[str, Sequence[str], PageBlock | None]]) -> None:
        """Keep the pages of one transfer: (pool, hashes, block) each; a block's positions are its hashes' in order."""
        for pool, hashes, block in parts:
            for position, page in enumerate(hashes):
                self._pages.setdefault(page, {})[pool] = (block, position)
            self._use(hashes)
        while len(self._pages) > self.max_pages:
            self._pages.popitem(last=False)

    def holds(self, pool: str, hashes: Sequence[str]) -> bool:
        """Whether every page is kept with its part of `pool`."""
        return all(pool in self._pages.get(page, ()) for page in hashes)

    def restorable(self, pool: str, hashes: Sequence[str], windows: Mapping[str, int]) -> list[int]:
        """Every number of leading pages, from 1, that is kept in `pool` and, for the last `windows[p]` pages, in p.

        Sparse where a window is short of a page. The pages kept in `pool` count as used.
        """
        held = 0
        while held < len(hashes) and pool in self._pages.get(hashes[held], ()):
            held += 1
        self._use(hashes[:held])
        return [
            count
            for count in range(1, held + 1)
            if all(self.holds(p, hashes[max(0, count - pages) : count]) for p, pages in windows.items())
        ]

    def _use(self, hashes: Sequence[str]) -> None:
        """Last page first, so that of one prefix the tail goes before the head that it needs."""
        for page in reversed(hashes):
            self._pages.move_to_end(page)

    def runs(self, pool: str, hashes: Sequence[str]) -> list[Run] | None:
        """Where the pages lie, in as few runs as possible; None if one is not kept."""
        if not self.holds(pool, hashes):
            return None
        return list(_runs([self._pages[page][pool] for page in hashes]))


def _runs(places: list[tuple[PageBlock | None, int]]) -> Iterator[Run]:
    start = 0
    for index in range(1, len(places) + 1):
        if index < len(places):
            (block, position), (before, earlier) = places[index], places[index - 1]
            if block is before and position == earlier + 1:
                continue
        yield Run(*places[start], start, index)
        start = index
