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

    def takes_counts(self, told: dict[str, tuple[int, ...]], cause: Cause, shadow: Shadow) -> bool:
        pool = self._pool
        if pool is None:
            pool = self._pool = next(iter(shadow.pools.values()))
        if pool.surplus:
            return False
        kind, rid = cause.kind, cause.rid
        _, _, evictable, protected = told[pool.shape.name]
        total = pool.lent - pool.asked_pages - pool.orphans - evictable - protected
        change = total - self._total
        if change or self._grown or kind in _ENDS:
            if not self._is_explained(kind, rid, change, pool.lends - self._lends):
                return False
            self._take(kind, rid, change)
            self._grown.clear()
            self._ended.clear()
        self._total, self._lends = total, pool.lends
        return True

    def _account(self, event: Event, pool: PoolShadow, change: int, lent: int, report: Report) -> None:
        kind, rid = event.cause.kind, event.cause.rid
        if event.method == "raised":
            self._unknown.update(self._grown)
            self._unknown.add(rid)
        elif not self._is_explained(kind, rid, change, lent):
            if rid < 0 or kind in _ALLOCATES:
                report(_unexplained(event, change - sum(self._grown.values())))
            elif kind == "admit":
                unexplained = change - min(max(change, 0), lent)
                report(_unexplained(event, unexplained))
                change -= unexplained
            else:
                left = self._private.get(rid, 0) + change
                report(_left(event, pool, left, self._ended.get(rid)))
        self._take(kind, rid, change)

    def _is_explained(self, kind: str, rid: int, change: int, lent: int) -> bool:
        """Whether tables account for the change, or the operation's own request may; one that ends leaves nothing."""
        if rid < 0 or kind in _ALLOCATES:
            return change == sum(self._grown.values())
        if kind == "admit":
            # What was lent for a load is the row's, or the tree's already, or was given back for want of SWA.
            return 0 <= change <= lent
        return kind not in _ENDS or rid in self._unknown or not self._private.get(rid, 0) + change

    def _take(self, kind: str, rid: int, change: int) -> None:
        private = self._private
        if rid < 0 or kind in _ALLOCATES:
            for row, gained in self._grown.items():
                private[row] = private.get(row, 0) + gained
        elif kind in _ENDS:
            private.pop(rid, None)
            self._unknown.discard(rid)
        else:
            private[rid] = private.get(rid, 0) + change


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
