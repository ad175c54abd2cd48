"""I7: a flush gives back exactly the pages that were asked back, as they were read when they were asked for.

Watching only what comes back is not enough: a free that is resolved at the flush, after the slot was mapped anew,
gives back a page that is validly on loan (sglang#36135). Groups do not nest, and none is open when all is quiet: an
inner group that drops the outer one's pile is seen as pages that never came (sglang#36646).
"""

from __future__ import annotations

import numpy as np

from stress.check.event import Event, EventKind
from stress.check.history import blame
from stress.check.pool_shadow import PoolShadow
from stress.check.rules.rule import Report, Rule, Violation
from stress.check.state import Shadow


class Flush(Rule):
    id = "I7"
    title = "a flush gives back what was asked back"
    needs = frozenset({"lends", "returns", "groups"})
    kinds = frozenset({EventKind.GROUP_BEGIN, EventKind.LEFTOVER})
    proved = True
    closes = True

    def check(self, event: Event, shadow: Shadow, report: Report) -> None:
        if event.kind is EventKind.GROUP_BEGIN:
            for pool in shadow.named(event.pool):
                if pool.group_open:
                    report(_nested(event, pool.shape.name))
            return
        for name, pool in shadow.pools.items():
            if pool.group_open:
                report(_left_open(name))

    def close(self, pool: PoolShadow, event: Event | None, shadow: Shadow, report: Report) -> None:
        intents, returned = pool.intents, pool.returned
        if len(intents) == 1 and len(returned) == 1 and np.array_equal(intents[0].pages, returned[0]):
            return
        came = np.unique(np.concatenate(returned)) if returned else np.empty(0, dtype=np.int64)
        asked = _lendable(pool, np.concatenate([i.pages for i in intents])) if intents else came[:0]
        if len(came) == len(asked) and (came == asked).all():
            return
        missing = np.setdiff1d(asked, came, assume_unique=True)
        extra = np.setdiff1d(came, asked, assume_unique=True)
        if len(missing) or len(extra):
            report(_differs(pool, missing, extra, event))


def _lendable(pool: PoolShadow, pages: np.ndarray) -> np.ndarray:
    """Sorted and once each; entries that read no peer are not among them."""
    return np.unique(pages[(pages >= pool.first) & (pages < pool.end)])


def _differs(pool: PoolShadow, missing: np.ndarray, extra: np.ndarray, event: Event | None) -> Violation:
    page = int(missing[0]) if len(missing) else int(extra[0])
    intent = next((i for i in pool.intents if (i.pages == page).any()), None)
    if intent is None and pool.intents:
        intent = pool.intents[0]

    def message() -> str:
        parts = []
        if len(missing):
            parts.append(
                f"{_count(missing)} asked back by {intent.method} ({blame(intent.cause)}) did not come"
            )
        if len(extra):
            asker = "" if intent is None or len(missing) else f" ({intent.method}, {blame(intent.cause)})"
            parts.append(f"{_count(extra)} came back though nobody asked for it{asker}")
        return f"{'flush' if event is not None else 'free'}: {'; '.join(parts)}"

    cause, at_us = (None, None) if intent is None else (intent.cause, intent.at_us)
    return Violation("I7", pool.shape.name, page, len(missing) + len(extra), message, cause, at_us)


def _count(pages: np.ndarray) -> str:
    return f"page {int(pages[0])}" if len(pages) == 1 else f"page {int(pages[0])} and {len(pages) - 1} more"


def _nested(event: Event, pool: str) -> Violation:
    return Violation(
        "I7",
        pool,
        -1,
        1,
        lambda: f"{event.method} ({blame(event.cause)}) opened a group inside a group",
    )


def _left_open(pool: str) -> Violation:
    return Violation("I7", pool, -1, 1, lambda: "a free group is still open after the drain")
