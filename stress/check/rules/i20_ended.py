"""I20 for one request: the target keeps nothing of a request that has ended; see i20_drained.py for the whole pool.

After a finish, an abort or a retraction the target is asked what it still has under the request's name: locks, loads on
their way, rows. A request that is aborted between its match and its batch is where they are forgotten (sglang#12693,
#9817). Pages are not asked for: i06_private_pages.py counts them. Level 1; a comparison for each request that ends.
"""

from __future__ import annotations

from stress.check.event import Event, EventKind
from stress.check.history import blame
from stress.check.rules.rule import Report, Rule, Violation
from stress.check.state import Shadow

_KEPT = ("locks", "loads", "rows")


class Ended(Rule):
    id = "I20"
    title = "nothing is kept of a request that has ended"
    needs = frozenset({"owners"})
    kinds = frozenset({EventKind.ENDED})

    def check(self, event: Event, shadow: Shadow, report: Report) -> None:
        if not event.pages.any() or event.method == "raised":
            return
        kept = {what: count for what, count in zip(_KEPT, event.pages.tolist(), strict=True) if count}
        table = shadow.tables.get(event.cause.rid)
        page = -1 if table is None else int(table[0])

        def message() -> str:
            left = ", ".join(f"{count} {what if count > 1 else what[:-1]}" for what, count in kept.items())
            named = "" if table is None else f", and {len(table)} pages in its table, first {page}"
            return f"left of request {event.cause.rid} after {blame(event.cause)}: {left}{named}"

        report(Violation("I20", event.pool, page, sum(kept.values()), message))
