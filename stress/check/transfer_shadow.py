"""What the linker's transfers do to pages, and which pages hold what they should: by the events so far.

`busy` counts the unfinished transfers of each page. A page is written when all its slots hold their tokens: they were
computed, or a load has brought them. That and how a load of it ended is kept together with the lend it was true of
(PoolShadow.lent_by), so that a page that is lent anew has forgotten it, and a lend costs nothing here. Judges nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from stress.check.event import Cause, Event
from stress.check.pool_shadow import PoolShadow

if TYPE_CHECKING:
    from stress.check.state import Shadow


class Transfer(NamedTuple):
    """An unfinished transfer: of int64[n] pages of `pool`, and of those pages of other pools that go with them."""

    kind: str  # "load" or "offload"
    pool: str
    pages: np.ndarray
    cause: Cause
    peers: list[tuple[str, np.ndarray]]


class PoolTransfers:
    """Of one pool, by page."""

    def __init__(self, pool: PoolShadow) -> None:
        size = len(pool.on_loan)
        self.lent_by = pool.lent_by
        self.busy = np.zeros(size, dtype=np.int32)
        self.busy_cells = memoryview(self.busy)
        self.written_in = np.full(size, -1, dtype=np.int32)  # of which lend it was written
        self.written_cells = memoryview(self.written_in)
        self.ended_in = np.full(size, -1, dtype=np.int32)  # of which lend a load has ended
        self.ended_by = np.zeros(size, dtype=np.int32)  # and under which of Shadow.causes
        self.moving = 0  # pages under transfer, counted once a transfer


class TransferShadow:
    """`open`: ticket -> Transfer."""

    def __init__(self, pools: dict[str, PoolShadow]) -> None:
        self.open: dict[int, Transfer] = {}
        self._pages = {name: PoolTransfers(pool) for name, pool in pools.items()}

    def of(self, pool: str) -> PoolTransfers:
        """The state of one pool."""
        return self._pages[pool]

    def busy_among(self, pool: str, pages: np.ndarray | list[int]) -> list[int]:
        """Those of the pages that a transfer still reads or writes."""
        of = self._pages[pool]
        if not of.moving:
            return []
        if type(pages) is list:
            cells, size = of.busy_cells, len(of.busy)
            return [page for page in pages if 0 <= page < size and cells[page]]
        inside = pages[pages.view(np.uint64) < len(of.busy)]
        return inside[of.busy[inside] > 0].tolist()

    def is_written(self, pool: str, pages: np.ndarray) -> np.ndarray:
        """bool[n]; the pages must have a place in the pool's arrays, as in what follows."""
        of = self._pages[pool]
        return of.written_in[pages] == of.lent_by[pages]

    def load_ended(self, pool: str, pages: np.ndarray) -> np.ndarray:
        """bool[n]: a load into the page has ended since it was lent."""
        of = self._pages[pool]
        return of.ended_in[pages] == of.lent_by[pages]

    def named_causes(self) -> Iterator[np.ndarray]:
        """Numbers of the causes under which loads have ended."""
        return (of.ended_by for of in self._pages.values())

    def end_of_load(self, pool: str, page: int) -> int:
        """Number of the cause under which that was; 0: none has."""
        of = self._pages[pool]
        return int(of.ended_by[page]) if of.ended_in[page] == of.lent_by[page] else 0

    def keep_ends(self, pool: str, pages: np.ndarray) -> None:
        """These, of which a load had ended, have been lent with what is in them."""
        of = self._pages[pool]
        of.ended_in[pages] = of.lent_by[pages]

    def to_be_loaded(self, pool: str) -> np.ndarray:
        """Pages that loads under way have still to bring."""
        loads = [one.pages for one in self.open.values() if one.kind == "load" and one.pool == pool]
        return np.concatenate(loads) if loads else np.empty(0, dtype=np.int64)

    def write(self, event: Event, pages: np.ndarray) -> None:
        of = self._pages[event.pool]
        of.written_in[pages] = of.lent_by[pages]

    def begin(self, event: Event, shadow: Shadow) -> None:
        """Through an edge: what the source pages of a transfer that has begun map to goes with it."""
        edge = shadow.edge_into.get(event.pool)
        if edge is None:
            pages = shadow.pools[event.pool].inside(event.pages)
            self.open[event.token] = Transfer(event.method, event.pool, pages, event.cause, [])
        elif event.token in self.open:
            peers = edge.peer[edge.source.inside(event.pages)]
            pages = peers[edge.is_page(peers)]
            self.open[event.token].peers.append((event.pool, pages))
        else:
            return
        self._move(event.pool, pages, 1)
        shadow.references.touch(event.pool, pages)

    def end(self, event: Event, shadow: Shadow) -> None:
        """`event.pages` are valid now; a ticket that is not open is left alone."""
        transfer = self.open.pop(event.token, None)
        if transfer is None:
            return
        for pool, pages in ((transfer.pool, transfer.pages), *transfer.peers):
            self._move(pool, pages, -1)
            shadow.references.touch(pool, pages)
        if transfer.kind != "load":
            return
        of, pages = self._pages[transfer.pool], transfer.pages
        of.ended_in[pages] = of.lent_by[pages]
        of.ended_by[pages] = shadow.causes.number(event.cause)
        self.write(event, shadow.pools[event.pool].inside(event.pages))

    def _move(self, pool: str, pages: np.ndarray, by: int) -> None:
        of = self._pages[pool]
        np.add.at(of.busy, pages, np.int32(by))  # a page that is named twice counts twice
        of.moving += by * len(pages)
