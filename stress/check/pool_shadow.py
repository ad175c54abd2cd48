"""What one pool, and one mapping edge between two pools, must look like by the events so far.

Arrays are indexed by page id and also hold the null page, which no count includes. `extra` and `surplus` say by how
much the target's free list is known to differ from the shadow's after violations that were reported: a page that
came back without being on loan is there once more than it should be. Later checks then report only what is new.
Nothing here judges; the rules do, before an event is applied.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from stress.check.event import Cause, EdgeShape, Event, PoolShape, with_arrays
from stress.check.masks import all_of, any_of

_NOTHING = np.empty(0, dtype=np.int64)
_COUNTING = np.arange(1 << 16)


class Intent(NamedTuple):
    """Pages of a pool that were asked back and have not come back yet, as read when they were asked for."""

    pages: np.ndarray
    sources: np.ndarray | None  # the source pages whose entries were read, one each; None: asked for directly
    cause: Cause
    method: str
    at_us: int


class PoolShadow:
    """State of one pool. `lent` counts pages on loan, `asked_pages` those of them that a free has asked back."""

    def __init__(self, shape: PoolShape):
        self.shape = shape
        self.first = shape.first_page
        self.end = shape.first_page + shape.pages
        self.null = shape.null_page
        size = max(self.end, 0 if self.null is None else self.null + 1)
        self.on_loan = np.zeros(size, dtype=bool)
        self.owner = np.full(size, -1, dtype=np.int64)
        self.lent_by = np.zeros(size, dtype=np.int32)  # number in Shadow.causes; 0: never lent
        self.asked = np.zeros(size, dtype=bool)
        self.orphan = np.zeros(size, dtype=bool)  # on loan, held by nobody, and reported
        self.tables = np.zeros(size, dtype=np.int32)  # how many request tables name the page
        self.extra = np.zeros(size, dtype=np.int32)
        self.lent = self.asked_pages = self.orphans = 0
        self.lends = 0  # pages lent since the start
        self.surplus = self.surplus_outside = 0  # free-list entries too many; those of them outside the pool
        self.tables_named = False  # whether any table has named a page of this pool
        self.group_open = False
        # Since the last close: frees that asked pages back (INTENT events), what came, whether rules judged any of it.
        self.asking: list[Event] = []
        self.came: list[np.ndarray | list[int]] = []
        self.doubtful = False
        self._intents: list[Intent] = []
        # The pages of the event at hand: see `look`.
        self.valid = self.outside = _NOTHING
        self.loaned = np.empty(0, dtype=bool)
        self.loans = 0
        self.repeated: np.ndarray | None = None
        self._stamp = np.zeros(size, dtype=np.int64)

    @property
    def intents(self) -> list[Intent]:
        """What frees have asked back since the last close, the first first."""
        for event in self.asking[len(self._intents) :]:
            pages, peers, cause = (event := with_arrays(event)).pages, event.peers, event.cause
            read, sources = (pages, None) if peers is None else (peers, pages)
            self._intents.append(Intent(read, sources, cause, event.method, event.at_us))
        return self._intents

    @property
    def returned(self) -> list[np.ndarray]:
        """The lendable pages that have come back since the last close, by call."""
        return [np.asarray(pages, dtype=np.int64) for pages in self.came]

    def look(self, pages: np.ndarray) -> None:
        """Sorts the pages of the event at hand: `valid` and `outside` of the pool; over `valid` the masks `loaned`,
        those on loan (`loans` of them), and `repeated`, those that come again later in it, or None."""
        wrong = (pages - self.first).view(np.uint64) >= self.shape.pages
        if any_of(wrong):
            self.valid, self.outside = pages[~wrong], pages[wrong]
        else:
            self.valid, self.outside = pages, _NOTHING
        valid = self.valid
        self.loaned = self.on_loan[valid]
        self.loans = np.count_nonzero(self.loaned)
        self.repeated = self.repeats(valid)

    def repeats(self, pages: np.ndarray) -> np.ndarray | None:
        """Mask of the pages that come again later among them; None: each comes once."""
        if len(pages) < 2:
            return None
        order = _COUNTING[: len(pages)] if len(pages) <= len(_COUNTING) else np.arange(len(pages))
        self._stamp[pages] = order
        repeated = self._stamp[pages] != order
        return repeated if any_of(repeated) else None

    def inside(self, pages: np.ndarray) -> np.ndarray:
        """Those of the ids that the arrays have a place for: lendable pages and the null page."""
        wrong = pages.view(np.uint64) >= len(self.extra)
        return pages[~wrong] if any_of(wrong) else pages

    def lend(self, rid: int, cause: int) -> None:
        """Applies the pages of `look` as lent."""
        valid = self.valid
        self.lent += len(valid)
        self.lends += len(valid) + len(self.outside)
        if self.loans or self.repeated is not None:
            again = self.loaned if self.repeated is None else self.loaned | self.repeated
            self._free_list_differs(valid[again], -1)
            self.lent -= int(np.count_nonzero(again))
        self.on_loan[valid] = True
        self.owner[valid] = rid
        self.lent_by[valid] = cause
        if len(self.outside):
            self._free_list_differs(self.outside, -1)
            self.surplus_outside -= len(self.outside)
            if self.null is not None and (self.outside == self.null).any():
                self.on_loan[self.null] = True
                self.owner[self.null] = rid
                self.lent_by[self.null] = cause

    def take_back(self, held: np.ndarray | None) -> None:
        """Applies the pages of `look` as returned. A page that was not on loan, came twice, or that the mask `held`
        says is still somebody's, stays as it is and counts as surplus on the target's free list."""
        valid = self.valid
        if self.loans < len(valid) or self.repeated is not None or held is not None:
            good = self.loaned
            if self.repeated is not None:
                good = good & ~self.repeated
            if held is not None:
                good = good & ~held
            self._free_list_differs(valid[~good], +1)
            valid = valid[good]
        self.on_loan[valid] = False
        self.lent -= len(valid)
        if self.asked_pages:
            self.asked_pages -= int(np.count_nonzero(self.asked[valid]))
            self.asked[valid] = False
        if self.orphans:
            self.orphans -= int(np.count_nonzero(self.orphan[valid]))
            self.orphan[valid] = False
        if len(self.outside):
            self._free_list_differs(self.outside, +1)
            self.surplus_outside += len(self.outside)
        self.came.append(self.valid)

    def ask(self, pages: np.ndarray) -> None:
        """Marks pages on loan as asked back; pages that are not on loan are left alone."""
        new = self.on_loan[pages] & ~self.asked[pages]
        if not all_of(new):
            pages = pages[new]
        self.asked[pages] = True
        self.asked_pages += len(pages)
        repeated = self.repeats(pages)
        if repeated is not None:
            self.asked_pages -= int(np.count_nonzero(repeated))

    def close(self) -> None:
        """A free or a group is over. What was asked back and did not come is written off (I7 has reported it)."""
        if self.asked_pages:
            late = np.flatnonzero(self.asked)
            self.asked[late] = False
            self.asked_pages = 0
            self.write_off(late)
        self.asking = []
        self.came = []
        self._intents = []
        self.doubtful = False

    def write_off(self, pages: np.ndarray) -> None:
        """These pages on loan have no holder, and that has been reported."""
        pages = pages[~self.orphan[pages]]
        self.orphan[pages] = True
        self.orphans += len(pages)

    def too_often_free(self) -> np.ndarray:
        """By page: how often the free list of `look` has it more than it should, less what is known. O(pool)."""
        seen = np.bincount(self.valid, minlength=len(self.extra))
        lendable = slice(self.first, self.end)
        seen[lendable] -= ~self.on_loan[lendable]
        seen[lendable] -= self.extra[lendable]
        return seen

    def trust_free_list(self) -> None:
        """The free list of `look` was judged: from now on only what differs from it is new."""
        extra = self.too_often_free()
        self.extra[self.first : self.end] += extra[self.first : self.end].astype(np.int32)
        self.surplus_outside = len(self.outside)
        if self.null is not None:
            self.extra[self.null] = np.count_nonzero(self.outside == self.null)
        self.surplus = int(self.extra[self.first : self.end].sum()) + self.surplus_outside

    def _free_list_differs(self, pages: np.ndarray, by: int) -> None:
        self.surplus += by * len(pages)
        np.add.at(self.extra, self.inside(pages), by)


class EdgeShadow:
    """Which target page each source page must map to. `holder[target page]` is the source page, -1: none."""

    def __init__(self, shape: EdgeShape, source: PoolShadow, target: PoolShadow):
        self.shape = shape
        self.source = source
        self.target = target
        self.no_peer = shape.no_peer
        self.peer = np.full(len(source.on_loan), shape.no_peer, dtype=np.int64)
        self.holder = np.full(len(target.on_loan), -1, dtype=np.int64)
        self.mapped = 0
        # (source, other source, target) to look at again at the end of the operation
        self.doubled: list[tuple[int, int, int]] = []

    def is_page(self, peers: np.ndarray) -> np.ndarray:
        """Mask of entries that name a lendable page of the target."""
        return (peers - self.target.first).view(np.uint64) < self.target.shape.pages

    def unmap(self, sources: np.ndarray) -> np.ndarray:
        """The source pages lose their peers; returns the target pages that they had."""
        old = self.peer[sources]
        had = self.is_page(old)
        old, owners = old[had], sources[had]
        self.peer[sources] = self.no_peer
        if not len(old):
            return old
        mine = old[self.holder[old] == owners]
        self.holder[mine] = -1
        self.mapped -= len(mine)
        return mine

    def bind(self, sources: np.ndarray, peers: np.ndarray) -> None:
        """The source pages map to `peers` from now on; an entry that names no page of the target means none."""
        self.unmap(sources)
        named = self.is_page(peers)
        self.peer[sources] = np.where(named, peers, self.no_peer)
        # Of a source page that is named twice the last entry counts.
        named &= self.peer[sources] == peers
        if not all_of(named):
            sources, peers = sources[named], peers[named]
        taken = self.holder[peers] >= 0
        if any_of(taken):
            for source, target in zip(sources[taken].tolist(), peers[taken].tolist(), strict=True):
                self.doubled.append((source, int(self.holder[target]), target))
        self.holder[peers] = sources
        # A target page that is named twice counts once.
        self.mapped += int(np.count_nonzero((self.holder[peers] == sources) & ~taken))
