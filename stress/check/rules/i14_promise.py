"""I14: slots are refused only where they are short: free + evictable pages would not have been enough in some pool.

A request is admitted on the promise that its prompt's slots can be had, by eviction if need be. A refusal that the
target's own counts do not explain breaks it: the batch is given up, or, where nothing else runs, the request hangs.
Asked when slots for prompt positions are refused, after whatever was evicted for them. Level 1; costs nothing but then.
"""

from __future__ import annotations

from stress.check.event import Event, EventKind
from stress.check.history import blame
from stress.check.rules.rule import Report, Rule, Violation
from stress.check.state import Shadow


class Promise(Rule):
    id = "I14"
    title = "slots that were promised are given"
    needs = frozenset({"counts", "tables"})
    kinds = frozenset({EventKind.REFUSED})

    def check(self, event: Event, shadow: Shadow, report: Report) -> None:
        needed, *counts = event.pages.tolist()
        rooms = [free + evictable for free, evictable in zip(counts[::2], counts[1::2], strict=True)]
        if min(rooms) < needed:
            return

        def message() -> str:
            there = ", ".join(
                f"{name} has {free} free and {evictable} evictable"
                for name, free, evictable in zip(shadow.pools, counts[::2], counts[1::2], strict=False)
            )
            return f"{needed} pages were refused ({blame(event.cause)}): {there}"

        report(Violation("I14", event.pool, -1, 1, message))
