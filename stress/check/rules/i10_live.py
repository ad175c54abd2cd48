"""I10: what the cache says has a peer has one: no page below the evict boundary is published as live.

At each checkpoint and finish the whole published path, in a sweep the whole cache. A page that was let go of and is
called live lets the next request that matches it read what is at slot 0, or at another's (sglang#30845, #22470).
Level 1. Three gathers on the path's live pages, some 5 us a publish.
"""

from __future__ import annotations

import numpy as np

from stress.check.event import Event, EventKind
from stress.check.history import blame
from stress.check.rules.rule import Report, Rule, Violation, such_pages
from stress.check.state import Shadow


class Live(Rule):
    id = "I10"
    title = "a page that the cache calls live has a peer"
    needs = frozenset({"lends", "returns", "mapping", "live"})
    kinds = frozenset({EventKind.LIVE})

    def __init__(self):
        self._known: dict[str, np.ndarray] = {}  # by pool: which source pages were wrong when last told

    def check(self, event: Event, shadow: Shadow, report: Report) -> None:
        edge, pages = shadow.edge_into[event.pool], event.pages
        peers = edge.peer[pages]
        wrong = edge.holder[peers] != pages
        wrong |= ~edge.target.on_loan[peers] | edge.target.asked[peers]
        count = np.count_nonzero(wrong)
        known = self._known.get(event.pool)
        if known is None:
            if not count:
                return
            known = self._known[event.pool] = np.zeros(len(edge.peer), dtype=bool)
        new = pages[wrong & ~known[pages]]
        known[pages] = wrong
        if len(new):
            report(self._violation(event, edge, new))

    def _violation(self, event: Event, edge, pages: np.ndarray) -> Violation:
        page, peer, count = int(pages[0]), int(edge.peer[pages[0]]), len(pages)

        def message() -> str:
            target = edge.shape.target
            has = (
                f"no {target} page"
                if peer == edge.no_peer
                else f"{target} page {peer}, which is not its any more"
            )
            return f"the cache says that page {page} is live; it has {has} ({blame(event.cause)}){such_pages(count)}"

        return Violation("I10", edge.shape.source, page, count, message)
