"""I8: the slots of a source page map into one target page, at the same offsets.

Sampled where slots can be read without a wait (on a CPU, so a run on a GPU does not watch this rule): the first two and
the last slot of each touched page at level 2, all at level 3. A page whose tail has no peers is one that is not written
to its end yet; a tail that has peers where the page has none was cleared for one token only (sglang#27779).
"""

from __future__ import annotations

import numpy as np

from stress.check.event import Event, EventKind, with_arrays
from stress.check.history import blame
from stress.check.rules.rule import Report, Rule, Violation, such_pages
from stress.check.state import Shadow


class Offsets(Rule):
    id = "I8"
    title = "slots of a page map to one page at equal offsets"
    needs = frozenset({"lends", "returns", "mapping", "offsets"})
    level = 2
    kinds = frozenset({EventKind.SLOTS})
    proved = True

    def check(self, event: Event, shadow: Shadow, report: Report) -> None:
        edge = shadow.edge_into[event.pool]
        size = edge.source.shape.page_size
        slots, entries = event.pages, event.peers
        peers = edge.peer[slots // size]
        wrong = entries != peers * size + slots % size
        if not np.count_nonzero(wrong):
            return
        found = entries // edge.target.shape.page_size
        wrong &= edge.is_page(found)
        if edge.target.group_open and wrong.any():
            # A free of the open group whose page still has all its entries clears them at the flush.
            asked = edge.target.asked[np.where(wrong, found, edge.target.first)]
            first_slots = with_arrays(shadow.last_map).peers
            wrong &= ~(asked & np.repeat(first_slots != edge.no_peer, len(slots) // len(first_slots)))
        if not np.count_nonzero(wrong):
            return
        slot, entry = int(slots[wrong][0]), int(entries[wrong][0])
        page, count = slot // size, len(np.unique(slots[wrong] // size))
        peer = int(peers[wrong][0])
        target = edge.shape.target

        def message() -> str:
            must = "no peer" if peer == edge.no_peer else f"a slot of {target} page {peer} at the same offset"
            return (
                f"{event.method} ({blame(event.cause)}) leaves {target} slot {entry} at token {slot % size} of "
                f"page {page}, must be {must}{such_pages(count)}"
            )

        report(Violation("I8", edge.shape.source, page, count, message))
