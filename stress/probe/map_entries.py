"""What the target's mapping says of pages whose entries a call may have written, read once the call is over.

An entry is read at a page's first slot; slots within the page are a sample, and only where a read costs no wait. An
entry that is still there while a free group is open may be cleared late: its page is looked at again when that ends.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from stress.check.event import EventKind
from stress.probe.capture import Column

if TYPE_CHECKING:
    from stress.probe.allocator_watch import Watch


class MapEntries:
    """`watch`: of a hybrid allocator, whose edge and mapping are read."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch

    def at(self, slots: Column) -> Column:
        """What the mapping says at these slots. On a host one that it does not have names no peer: what was lent
        beyond the pool may be asked for, and it is the target's to fail."""
        watch = self._watch
        try:
            return watch.reader.entries(watch.mapping, slots)
        except IndexError:
            if watch.reader.waits:
                raise
            asked = np.asarray(slots)
            found = np.full(len(asked), watch.edge.no_peer * watch.source.page_size)
            there = asked.view(np.uint64) < len(watch.mapping)
            found[there] = watch.reader.entries(watch.mapping, asked[there])
            return found.tolist() if type(slots) is list else found

    def of(self, pages: Column) -> Column:
        """Target pages that the mapping names at the first slots of source pages."""
        size = self._watch.source.page_size
        if type(pages) is list:
            return [entry // size for entry in self.at([page * size for page in pages])]
        return self.at(pages * size) // size

    def tell(self, pages: Column, method: str) -> None:
        """What the mapping says of the pages now, and a sample of slots within them where that costs no wait."""
        watch = self._watch
        entries = self.of(pages)
        watch.tell(EventKind.MAP, watch.edge.target, pages, entries, method)
        if not watch.reader.waits and watch.ledger.level >= 2:
            slots = self._inner_slots(pages)
            found = self.at(slots)
            watch.tell(EventKind.SLOTS, watch.edge.target, slots, found, method)
        # An entry that an open group has not cleared is looked at again when it ends; on a GPU each one is.
        if watch.group_touched is not None:
            if watch.reader.waits:
                late = pages
            elif type(pages) is list:
                no_peer = watch.edge.no_peer
                late = [page for page, entry in zip(pages, entries, strict=True) if entry != no_peer]
            else:
                late = pages[entries != watch.edge.no_peer]
            if len(late):
                watch.group_touched.append(late)

    def _inner_slots(self, pages: Column) -> Column:
        """Slots behind the first of each page: the second one, which a page that is not full has too, and the last one;
        at level 3 all."""
        size = self._watch.source.page_size
        if self._watch.ledger.level >= 3 or size < 3:
            return (np.asarray(pages)[:, None] * size + np.arange(1, size)).ravel()
        if type(pages) is list:
            return [page * size + offset for page in pages for offset in (1, size - 1)]
        return (pages[:, None] * size + np.array([1, size - 1])).ravel()
