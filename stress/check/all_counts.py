"""Counts of all pools at an operation's end: no event is made of those that are plainly in order."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from stress.check.event import Cause, Event, EventKind
from stress.check.plan import Plan
from stress.check.proof import counts_in_order
from stress.check.rules.rule import Rule
from stress.check.state import Shadow


class AllCounts(msgspec.Struct, frozen=True, gc=False):
    """`known`: by pool, as in COUNTS; `before`: those that were told last. `moved`: pages have changed hands, so the
    first pool's counts, whose pages have owners, are told anyhow."""

    kind = EventKind.COUNTS

    cause: Cause
    call: int
    at_us: int
    known: dict[str, tuple[int, ...]]
    before: dict[str, tuple[int, ...]]
    moved: bool = False

    def events(self, method: str = "end") -> list[Event]:
        """One of each pool that has something to tell."""
        first = next(iter(self.known))
        return [
            Event(EventKind.COUNTS, pool, list(counts), None, self.cause, self.call, method, self.at_us)
            for pool, counts in self.known.items()
            if self.before.get(pool) != counts or (self.moved and pool == first)
        ]

    def in_order(self, plan: Plan, shadow: Shadow, drop: Callable[[Rule], None]) -> bool:
        """Whether nobody wants to see them as events, by the plan for COUNTS: they are taken for told then.

        Else nothing is done. A rule that raises is given to `drop`.
        """
        if plan.few is None or plan.listeners:
            return False
        pools, known = shadow.pools, self.known
        for name, counts in known.items():
            if not counts_in_order(pools[name], counts):
                return False
        for rule, _ in plan.others:
            try:
                if not rule.takes_counts(known, self.cause, shadow):
                    return False
            except Exception:
                drop(rule)
        return True
