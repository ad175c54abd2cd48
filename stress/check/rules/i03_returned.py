"""I3: a page that comes back is on loan from this pool, and comes back once in the call.

Padding and ids outside the pool are I1's. A page that is on the free list already will be lent twice.
"""

from __future__ import annotations

from stress.check.event import Event, EventKind
from stress.check.history import blame
from stress.check.rules.rule import Report, Rule, Violation
from stress.check.state import Shadow


class Returned(Rule):
    id = "I3"
    title = "a returned page is on loan, once"
    needs = frozenset({"lends", "returns"})
    kinds = frozenset({EventKind.RETURN})

    def check(self, event: Event, shadow: Shadow, report: Report) -> None:
        pool = shadow.pools[event.pool]
        wrong = ~pool.on_loan[pool.valid]
        if pool.repeated is not None:
            wrong = wrong | pool.repeated
        if not wrong.any():
            return
        pages = pool.valid[wrong]
        page, free = int(pages[0]), not pool.on_loan[pages[0]]
        cause, at_us = _asker(pool, page, event)

        def message() -> str:
            why = "is not on loan" if free else "comes back twice in one call"
            more = f"; {len(pages)} such pages" if len(pages) > 1 else ""
            return f"page {page} returned by {event.method} ({blame(cause)}) {why}{more}"

        report(Violation("I3", event.pool, page, len(pages), message, cause, at_us))


def _asker(pool, page: int, event: Event):
    """Cause and time of the last free that asked for the page, else those of the return itself."""
    for intent in reversed(pool.intents):
        if (intent.pages == page).any():
            return intent.cause, intent.at_us
    return event.cause, event.at_us
