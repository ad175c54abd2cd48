"""I13: the target's counts add up: free + evictable + protected + private + pending == size, in every pool.

After each operation the free count is compared with the shadow's, and the cache's counts with what is on loan. What
pages a request holds beyond the cache's is never asked: it follows from the counts, changes only in the request's own
operations, and must be 0 when it has gone. So a leak, a counter that drifts (sglang#10637) or a failed allocation that
was not rolled back (kvcached#364) is seen at its operation, in O(1). A sweep adds the terms up from tables and cache.
Only changes are reported.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from stress.check.event import Event, EventKind
from stress.check.history import blame
from stress.check.pool_shadow import PoolShadow
from stress.check.rules.rule import Report, Rule, Violation
from stress.check.state import Shadow


class Conservation(Rule):
    id = "I13"
    title = "free + evictable + protected + private + pending == size"
    needs = frozenset({"lends", "returns", "counts"})
    level = 0
    kinds = frozenset({EventKind.COUNTS, EventKind.CACHED})
    proved = True

    def __init__(self):
        self._off: dict[tuple[str, str], int] = {}

    def check(self, event: Event, shadow: Shadow, report: Report) -> None:
        pool = shadow.pools[event.pool]
        if event.kind is EventKind.CACHED:
            self._check_cached(event, pool, report)
            return
        available = int(event.pages[1])
        expected = pool.shape.pages - pool.lent + pool.surplus
        self._changed(
            event,
            "free",
            available - expected,
            report,
            lambda: f"{available} pages free, {expected} expected",
        )
        if len(event.pages) == 4:
            self._check_cache_counts(event, pool, report)
            if event.method == "sweep" and shadow.cached is not None:
                self._check_terms(event, pool, shadow, report)

    def _check_cache_counts(self, event: Event, pool: PoolShadow, report: Report) -> None:
        """What the cache counts as its own is on loan: a node whose value is padding counts pages that are not."""
        size, available, evictable, protected = event.pages.tolist()
        over = max(0, evictable + protected - pool.lent)
        lent = pool.lent

        def text() -> str:
            return (
                f"the cache counts {evictable} evictable + {protected} protected pages and {lent} are on loan: "
                f"with {available} free that makes {available + evictable + protected} of {size}"
            )

        self._changed(event, "cache counts", over, report, text)

    def _check_cached(self, event: Event, pool: PoolShadow, report: Report) -> None:
        pages = pool.inside(event.pages)
        gone = int(np.count_nonzero(~pool.on_loan[pages]))
        page = f", first {int(pages[~pool.on_loan[pages]][0])}" if gone else ""
        self._changed(event, "cached", gone, report, lambda: f"{gone} cached pages are not on loan{page}")

    def _check_terms(self, event: Event, pool: PoolShadow, shadow: Shadow, report: Report) -> None:
        size, available, evictable, protected = event.pages.tolist()
        edge = shadow.edge_into.get(event.pool)
        source = pool if edge is None else edge.source
        private = source.tables > 0
        private[source.inside(shadow.cached)] = False
        private[: source.first] = False
        if edge is not None:
            private &= edge.is_page(edge.peer)
        count = int(np.count_nonzero(private))
        pending = pool.asked_pages + pool.orphans
        total = available + evictable + protected + count + pending - pool.surplus
        surplus = pool.surplus

        def text() -> str:
            return (
                f"{available} free + {evictable} evictable + {protected} protected + {count} private "
                f"+ {pending} pending - {surplus} that should not be free = {total}, must be {size}"
            )

        self._changed(event, "terms", total - size, report, text)

    def _changed(self, event: Event, what: str, off: int, report: Report, text: Callable[[], str]) -> None:
        before = self._off.get((event.pool, what), 0)
        if off == before:
            return
        self._off[event.pool, what] = off
        # Back to 0 is a repair by chance, not another fault.
        if off != 0:
            report(Violation("I13", event.pool, -1, 1, lambda: f"{text()} ({blame(event.cause)})"))
