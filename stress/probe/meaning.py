"""What a call of the target means, told before it runs, by arithmetic of the probe's own.

A free asks pages back: the source pages themselves, or through the mapping the pages that it names at one slot of
each; where the mapping's target is lent in another way, it only forgets the entry. A write of the mapping, and an
allocation in both pools, say what pages shall map to from now on; reading the mapping afterwards must confirm it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from stress.check.event import EventKind
from stress.probe.capture import FEW, Column
from stress.probe.watched_pool import WatchedPool

if TYPE_CHECKING:
    from stress.probe.allocator_watch import Watch

_ALL = slice(None)
SET_FREES = ("free", "free_swa", "free_full")
SEGMENT_FREES = ("free_segment", "free_swa_segment", "free_full_segment")
_OF_TARGET = frozenset({"free_swa", "free_swa_segment"})
_OF_SOURCE = frozenset({"free_full", "free_full_segment"})

# By themselves: up to Python 3.11 a member is looked up on its class at the price of a call.
_INTENT, _BIND = EventKind.INTENT, EventKind.BIND


class Meaning:
    """Tells INTENT and BIND events of one watch."""

    def __init__(self, watch: Watch):
        self._watch = watch

    def of_free(self, name: str, args: tuple, kwargs: dict) -> None:
        """A free of the hybrid: what it asks back in each pool."""
        watch = self._watch
        indices = args[0] if args else next(iter(kwargs.values()))
        if not indices.numel():
            return
        size, edge = watch.source.page_size, watch.edge
        slots = self._representatives(name, indices, args, kwargs, size)
        pages = _divided(slots, size)
        if edge is not None and name not in _OF_SOURCE:
            if edge.gives_back:
                peers = _divided(watch.entries.at(slots), size)
                watch.tell(_INTENT, edge.target, pages, peers, name)
            else:
                watch.tell(_BIND, edge.target, pages, self._no_peers(pages), name)
            watch.touched.append(pages)
        if name not in _OF_TARGET:
            watch.tell(_INTENT, watch.source.name, pages, None, name)

    def of_pool_free(self, pool: WatchedPool, name: str, args: tuple, kwargs: dict) -> None:
        """A free of a sub pool that is called directly: no mapping is read."""
        indices = args[0] if args else next(iter(kwargs.values()))
        if not indices.numel():
            return
        if name == "free_page_ids":
            pages = self._watch.reader.pages(indices, _ALL, 1)
        else:
            slots = self._representatives(name, indices, args, kwargs, pool.page_size)
            pages = _divided(slots, pool.page_size)
        self._watch.tell(_INTENT, pool.name, pages, None, name)

    def of_map_write(self, name: str, args: tuple, kwargs: dict) -> None:
        """The mapping is written directly. Pages whose first slot is named get new peers, or lose theirs."""
        watch = self._watch
        size = watch.source.page_size
        named = [*args, *kwargs.values()]
        slots = watch.reader.slots(named[0])
        peers = watch.reader.slots(named[1]) // size if len(named) > 1 else self._no_peers(slots)
        if watch.reader.waits:
            watch.tell(_BIND, watch.edge.target, slots, peers, name, slots_of=size)
            watch.touched.append(slots // size)
            return
        starts = np.flatnonzero(slots % size == 0)
        if len(starts):
            pages = slots[starts] // size
            watch.tell(_BIND, watch.edge.target, pages, peers[starts], name)
            watch.touched.append(pages)

    def of_lends(self, method: str) -> None:
        """Pages that one call lent belong together, in order; if fewer came with peers, the last ones have them."""
        watch = self._watch
        if watch.edge is None:
            return
        pages = watch.reader.join(watch.source.lent)
        lent = watch.pools[1].lent if len(watch.pools) > 1 else []
        peers = watch.reader.join(lent)[-len(pages) :] if lent else pages[:0]
        alone = len(pages) - len(peers)
        if alone:
            bare = pages[:alone]
            watch.tell(_BIND, watch.edge.target, bare, self._no_peers(bare), method)
        if len(peers):
            bound = pages[alone:]
            if type(bound) is not type(peers) and not watch.reader.waits:
                bound, peers = np.asarray(bound, dtype=np.int64), np.asarray(peers, dtype=np.int64)
            watch.tell(_BIND, watch.edge.target, bound, peers, method)
        watch.touched.append(pages)

    def _no_peers(self, pages: Column) -> Column:
        if type(pages) is list:
            return [self._watch.edge.no_peer] * len(pages)
        return pages * 0 + self._watch.edge.no_peer

    def _representatives(self, name: str, indices, args: tuple, kwargs: dict, size: int) -> Column:
        """One slot a page: by position in a segment, the first named of each page in a set."""
        reader = self._watch.reader
        if name in SEGMENT_FREES:
            start = kwargs["start_pos"] if "start_pos" in kwargs else args[1]
            return reader.segment(indices, int(start), size)
        slots = reader.slots(indices)
        if reader.waits:
            # Which slots share a page is found out on the host, when they have landed.
            return slots
        slots = slots[np.sort(np.unique(slots // size, return_index=True)[1])]
        return slots.tolist() if len(slots) <= FEW else slots


def _divided(slots: Column, size: int) -> Column:
    return [slot // size for slot in slots] if type(slots) is list else slots // size
