"""I4: the mapping says what the shadow says, wherever it is written or read.

After an allocation each new source page maps to the page lent with it, or to none; after a free to none
(sglang#25805, #26078: entries that outlive their page). A target that clears an entry only at the flush of a group is
let be until then: whether that was safe is seen by I7.
"""

from __future__ import annotations

import numpy as np

from stress.check.event import Event, EventKind
from stress.check.history import blame
from stress.check.pool_shadow import EdgeShadow
from stress.check.rules.rule import Report, Rule, Violation, such_pages
from stress.check.state import Shadow


class Mapping(Rule):
    id = "I4"
    title = "the mapping entry is the shadow's peer"
    needs = frozenset({"lends", "returns", "mapping"})
    kinds = frozenset({EventKind.MAP, EventKind.INTENT, EventKind.BIND})
    proved = True

    def __init__(self):
        # (source pool, source page) -> a wrong entry that was reported; a sweep does not report it again.
        self._reported: dict[tuple[str, int], int] = {}

    def check(self, event: Event, shadow: Shadow, report: Report) -> None:
        if event.peers is None:
            return
        edge = shadow.edge_into[event.pool]
        if event.kind is EventKind.BIND:
            if self._reported:
                for page in event.pages.tolist():
                    self._reported.pop((edge.shape.source, page), None)
            return
        expected = edge.peer[event.pages]
        wrong = expected != event.peers
        if np.count_nonzero(wrong):
            self._judge(event, edge, np.flatnonzero(wrong), report)

    def _judge(self, event: Event, edge: EdgeShadow, at: np.ndarray, report: Report) -> None:
        entries = event.peers
        if edge.target.group_open:
            # Entry still there, page asked back by a free of the open group: cleared late, or not at all.
            clipped = np.where(edge.is_page(entries[at]), entries[at], edge.target.first)
            at = at[~(edge.is_page(entries[at]) & edge.target.asked[clipped])]
        source = edge.shape.source
        new = [i for i in at.tolist() if self._reported.get((source, int(event.pages[i]))) != int(entries[i])]
        if not new:
            return
        page, entry = int(event.pages[new[0]]), int(entries[new[0]])
        expected = int(edge.peer[page])
        if event.kind is EventKind.MAP:
            self._reported.update(((source, int(event.pages[i])), int(entries[i])) for i in new)

        def message() -> str:
            read = "reads" if event.kind is EventKind.INTENT else "leaves"
            target = edge.shape.target
            found = "no peer" if entry == edge.no_peer else f"{target} page {entry}"
            must = "no peer" if expected == edge.no_peer else f"{target} page {expected}"
            return (
                f"{event.method} ({blame(event.cause)}) {read} {found} at {source} page {page}, "
                f"must be {must}{such_pages(len(new))}"
            )

        report(Violation("I4", source, page, len(new), message))
