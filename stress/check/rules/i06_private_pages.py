"""I6 for the pool that holds every position: what a request owned beyond the cache is gone when the request is.

Private pages = lent - asked back - evictable - protected, a number, O(1) after each operation. It grows only by what
tables gain in an allocation, in an admission by what is lent for a load at most, changes otherwise only in an operation
of one request, and is 0 for a request that has ended. So a reserved tail that is never given back (sglang#31616), a
counter that drifts (sglang#10637, then I13) and an allocation that failed without rolling back (kvcached#364, I13) are
seen at their operation.
Once the free list of the pool is corrupt its accounts mean nothing: the rule then keeps silent.
"""

from __future__ import annotations

import numpy as np

from stress.check.event import Cause, Event, EventKind
from stress.check.history import blame
from stress.check.pool_shadow import PoolShadow
from stress.check.rules.rule import Report, Rule, Violation
from stress.check.state import Shadow

_NOTHING = np.empty(0, dtype=np.int64)
_ENDS = frozenset({"finish", "abort", "retract"})
_ALLOCATES = frozenset({"extend", "reserve"})

# By themselves: up to Python 3.11 a member is looked up on its class at the price of a call.
_HOLD = EventKind.HOLD


class PrivatePages(Rule):
    id = "I6"
    title = "a request that has ended owns nothing"
    also = frozenset({"I13"})
    needs = frozenset({"lends", "returns", "tables", "cache", "counts"})
    kinds = frozenset({EventKind.HOLD, EventKind.COUNTS})
    takes_lists = True

    def __init__(self):
        self._pool: PoolShadow | None = None  # the one that holds every position
        self._total = 0
        self._lends = 0  # pages lent up to the last counts
        self._private: dict[int, int] = {}
        self._unknown: set[int] = set()  # an operation of the request raised half-way
        self._grown: dict[int, int] = {}
        self._ended: dict[int, np.ndarray] = {}

    def check(self, event: Event, shadow: Shadow, report: Report) -> None:
        if event.kind is _HOLD:
            rid = event.cause.rid
            old = shadow.tables.get(rid, _NOTHING)
            self._grown[rid] = len(event.pages) - len(old)
            if not len(event.pages):
                self._ended[rid] = old
            return
        counts, pool = event.pages, self._pool
        if pool is None:
            pool = self._pool = next(iter(shadow.pools.values()))
        if event.pool != pool.shape.name or len(counts) < 4 or event.method == "sweep":
            return
        _, _, evictable, protected = counts if type(counts) is list else counts.tolist()
        total = pool.lent - pool.asked_pages - pool.orphans - evictable - protected
        change, self._total = total - self._total, total
        self._lends, lent = pool.lends, pool.lends - self._lends
        if not (change or self._grown or event.cause.kind in _ENDS or event.method == "raised"):
            return
        if pool.surplus == 0:
            self._account(event, pool, change, lent, report)
        self._grown.clear()
        self._ended.clear()

    def takes_counts(self, pool: PoolShadow, counts: tuple[int, ...], cause: Cause, shadow: Shadow) -> bool:
        if pool.shape.name in shadow.edge_into:
            return True
        if pool is not self._pool or len(counts) < 4 or pool.surplus:
            return False
        _, kind, rid, _ = cause
        total = pool.lent - pool.asked_pages - pool.orphans - counts[2] - counts[3]
        change, grown = total - self._total, self._grown
        if change or grown or kind in _ENDS:
            if not (rid < 0 or kind in _ALLOCATES) or change != sum(grown.values()):
                return False
            for row, gained in grown.items():
                self._private[row] = self._private.get(row, 0) + gained
            grown.clear()
            self._ended.clear()
        self._total, self._lends = total, pool.lends
        return True

    def _account(self, event: Event, pool: PoolShadow, change: int, lent: int, report: Report) -> None:
        kind, rid = event.cause.kind, event.cause.rid
        raised = event.method == "raised"
        if raised:
            self._unknown.update(self._grown)
            self._unknown.add(rid)
        elif rid < 0 or kind in _ALLOCATES:
            unexplained = change - sum(self._grown.values())
            if unexplained:
                report(_unexplained(event, unexplained))
        elif kind == "admit":
            # What was lent for a load is the row's, or the tree's already, or was given back for want of SWA.
            unexplained = change - min(max(change, 0), lent)
            if unexplained:
                report(_unexplained(event, unexplained))
                change -= unexplained
        if rid < 0 or kind in _ALLOCATES:
            for row, gained in self._grown.items():
                self._private[row] = self._private.get(row, 0) + gained
            return
        left = self._private.get(rid, 0) + change
        if kind not in _ENDS:
            self._private[rid] = left
            return
        self._private.pop(rid, None)
        if left and rid not in self._unknown:
            report(_left(event, pool, left, self._ended.get(rid)))
        self._unknown.discard(rid)


def _unexplained(event: Event, count: int) -> Violation:
    def message() -> str:
        what = (
            "more on loan than tables and cache account for"
            if count > 0
            else "more accounted for than on loan"
        )
        return f"{abs(count)} pages {what} after operation {event.cause.operation} ({blame(event.cause)})"

    return Violation("I13", event.pool, -1, 1, message)


def _left(event: Event, pool: PoolShadow, left: int, table: np.ndarray | None) -> Violation:
    if left < 0:
        text = f"the cache counts {-left} pages more than request {event.cause.rid} gave it ({blame(event.cause)})"
        return Violation("I13", event.pool, -1, 1, lambda: text)
    page = -1
    if table is not None:
        # Which of the table's pages went to the cache is not asked; a tail that stayed is the likeliest.
        stayed = table[pool.on_loan[table] & ~pool.asked[table]]
        page = int(stayed[-1]) if len(stayed) else -1

    def message() -> str:
        likely = f", page {page} most likely" if page >= 0 else ""
        return (
            f"{left} pages of request {event.cause.rid} stay on loan after {blame(event.cause)}: neither returned, "
            f"asked back nor in the cache{likely}"
        )

    return Violation("I6", event.pool, page, left, message)
