"""I2: a page that is lent was free.

The null page is looked at too: once padding has come on the free list it is lent like any other page, and from the
second borrower on two requests write to one page. A borrower whose request holds nothing any more has gone.
"""

from __future__ import annotations

import numpy as np

from stress.check.event import Event, EventKind
from stress.check.history import blame, shadow_owner
from stress.check.pool_shadow import PoolShadow
from stress.check.rules.rule import Report, Rule, Violation
from stress.check.state import Shadow


class Exclusive(Rule):
    id = "I2"
    title = "a lent page was free"
    needs = frozenset({"lends", "returns"})
    kinds = frozenset({EventKind.LEND})
    proved = True

    def check(self, event: Event, shadow: Shadow, report: Report) -> None:
        pool = shadow.pools[event.pool]
        if pool.loans or pool.repeated is not None:
            again = pool.loaned if pool.repeated is None else pool.loaned | pool.repeated
            pages = pool.valid[again]
            report(_lent_twice(event, pool, int(pages[0]), len(pages), shadow))
        if len(pool.outside) and pool.null is not None:
            self._check_null(event, pool, shadow, report)

    def _check_null(self, event: Event, pool: PoolShadow, shadow: Shadow, report: Report) -> None:
        borrowed = int(np.count_nonzero(pool.outside == pool.null))
        shared = borrowed if pool.on_loan[pool.null] and _still_there(pool, event, shadow) else borrowed - 1
        if shared > 0:
            report(_lent_twice(event, pool, pool.null, shared, shadow))


def _still_there(pool: PoolShadow, event: Event, shadow: Shadow) -> bool:
    """Whether the last borrower of padding may still use it: nobody returns padding in its own right."""
    owner = int(pool.owner[pool.null])
    return owner < 0 or owner == event.cause.rid or not shadow.tables or owner in shadow.tables


def _lent_twice(event: Event, pool: PoolShadow, page: int, count: int, shadow: Shadow) -> Violation:
    before = shadow.causes[pool.lent_by[page]]
    owner = shadow_owner(shadow, event.pool, page)
    on_loan = bool(pool.on_loan[page])

    def message() -> str:
        to = f"to request {event.cause.rid} " if event.cause.rid >= 0 else ""
        why = f"{event.method} ({blame(event.cause)})"
        more = f" (the first of {count} such pages)" if count > 1 else ""
        if not on_loan:
            return f"page {page} lent twice {to}in one call of {why}{more}"
        holder = f"request {owner}" if owner >= 0 else blame(before)
        return (
            f"page {page} lent {to}by {why} while on loan to {holder} "
            f"since operation {before.operation}{more}"
        )

    return Violation("I2", event.pool, page, count, message)
