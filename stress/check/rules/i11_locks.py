"""I11: locks are a multiset by holder: an unlock gives up exactly what its lock took, whatever has changed between.

An unlock that gives up what another holder took leaves that one's pages open to eviction, and nobody sees it until a
counter goes below zero or a page is gone under a reader (sglang#24972, #36350, #27147). No component of a page is held
by more than the page. Locks come with admission, checkpoint and end alone. Level 1. O(path), some 30 us a lock or
unlock with what the probe reads for it, most of it to put the path's pages together.
"""

from __future__ import annotations

import numpy as np

from stress.check.event import Event, EventKind
from stress.check.history import blame
from stress.check.rules.rule import Report, Rule, Violation, such_pages
from stress.check.state import Shadow


class Locks(Rule):
    id = "I11"
    title = "an unlock gives up what its lock took"
    needs = frozenset({"locks"})
    kinds = frozenset({EventKind.LOCK, EventKind.UNLOCK})

    def check(self, event: Event, shadow: Shadow, report: Report) -> None:
        pages = event.pages
        if event.kind is EventKind.UNLOCK:
            held = shadow.locks.held.get((event.pool, event.token), pages[:0])
            if len(held) != len(pages) or not (held == pages).all():
                self._compare(event, held, shadow, report)
            return
        edge = shadow.edge_into.get(event.pool)
        if edge is not None:
            whole = shadow.locks.holders_in(edge.shape.source)[pages]
            alone = shadow.locks.holders_in(event.pool)[pages] >= whole
            if np.count_nonzero(alone):
                self._say(event, pages[alone], f"which fewer hold in {edge.shape.source}", report)

    def _compare(self, event: Event, held: np.ndarray, shadow: Shadow, report: Report) -> None:
        """What the unlock gave up is not what its lock took."""
        more, less = np.setdiff1d(event.pages, held), np.setdiff1d(held, event.pages)
        if len(more):
            others = int(shadow.locks.holders_in(event.pool)[more[0]])
            who = f": that takes it from one of {others} others" if others else ": the count is below zero"
            self._say(event, more, f"which its lock {event.token} never took{who}", report)
        if len(less):
            self._say(
                event, less, f"and not this one, which its lock {event.token} took: it stays locked", report
            )

    def _say(self, event: Event, pages: np.ndarray, what: str, report: Report) -> None:
        page, count = int(pages[0]), len(pages)

        def message() -> str:
            does = "locks" if event.kind is EventKind.LOCK else "unlocks"
            more = such_pages(count)
            return f"{event.method} {does} {event.pool} of page {page}, {what} ({blame(event.cause)}){more}"

        report(Violation("I11", event.pool, page, count, message))
