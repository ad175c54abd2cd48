"""I3: a page that comes back is on loan from this pool, and comes back once in the call.

Padding and ids outside the pool are I1's. A page that is on the free list already will be lent twice. A sweep finds
what no watched method put on the free list.
"""

from __future__ import annotations

import numpy as np

from stress.check.event import Event, EventKind
from stress.check.history import blame
from stress.check.pool_shadow import PoolShadow
from stress.check.rules.rule import Report, Rule, Violation, asker, such_pages
from stress.check.state import Shadow


class Returned(Rule):
    id = "I3"
    title = "a returned page is on loan, once"
    needs = frozenset({"lends", "returns"})
    kinds = frozenset({EventKind.RETURN, EventKind.FREE_LIST})
    proved = True

    def check(self, event: Event, shadow: Shadow, report: Report) -> None:
        pool = shadow.pools[event.pool]
        if event.kind is EventKind.FREE_LIST:
            self._check_free_list(event, pool, report)
            return
        if pool.loans == len(pool.valid) and pool.repeated is None:
            return
        wrong = ~pool.loaned if pool.repeated is None else ~pool.loaned | pool.repeated
        pages = pool.valid[wrong]
        page, free = int(pages[0]), not pool.on_loan[pages[0]]
        cause, at_us = asker(pool, page, event)

        def message() -> str:
            why = "is not on loan" if free else "comes back twice in one call"
            return f"page {page} returned by {event.method} ({blame(cause)}) {why}{such_pages(len(pages))}"

        report(Violation("I3", event.pool, page, len(pages), message, cause, at_us))

    def _check_free_list(self, event: Event, pool: PoolShadow, report: Report) -> None:
        pages = np.flatnonzero(pool.too_often_free() > 0)
        if not len(pages):
            return
        page = int(pages[0])

        def message() -> str:
            what = "is on loan and" if pool.on_loan[page] else "more than once"
            return (
                f"page {page} {what} on the free list{such_pages(len(pages))}; "
                "found by a sweep: a write that no watched method made"
            )

        report(Violation("I3", event.pool, page, len(pages), message))
