"""I20: after a drain nothing is lent, pending, held, locked, pinned, loading, offloading or running."""

from __future__ import annotations

import numpy as np

from stress.check.event import Event, EventKind, request_of
from stress.check.rules.rule import Report, Rule, Violation
from stress.check.state import Shadow

_LEFTOVER = ("locks", "pins", "loads", "offloads", "requests")


class Drained(Rule):
    id = "I20"
    title = "after a drain nothing is left"
    needs = frozenset({"lends", "returns", "drain"})
    level = 0
    kinds = frozenset({EventKind.LEFTOVER})

    def check(self, event: Event, shadow: Shadow, report: Report) -> None:
        for name, pool in shadow.pools.items():
            on_loan = pool.on_loan[pool.first : pool.end]
            if on_loan.any():
                pages = pool.first + np.flatnonzero(on_loan)
                moving = np.count_nonzero(shadow.transfers.of(name).busy[pages])
                self._report_lent(name, pages, moving, report)
        for owner, table in shadow.tables.items():
            report(_held(event.pool, request_of(owner), table))
        left = {what: count for what, count in zip(_LEFTOVER, event.pages.tolist(), strict=True) if count}
        if left:
            text = ", ".join(f"{count} {what}" for what, count in left.items())
            report(
                Violation("I20", event.pool, -1, sum(left.values()), lambda: f"left after the drain: {text}")
            )

    def _report_lent(self, name: str, pages: np.ndarray, moving: int, report: Report) -> None:
        page, count = int(pages[0]), len(pages)
        held = f"; transfers that have not ended hold {moving} of them" if moving else ""
        text = f"{count} pages on loan after the drain, first {page}{held}"
        report(Violation("I20", name, page, count, lambda: text))


def _held(pool: str, rid: int, table: np.ndarray) -> Violation:
    page = int(table[0])
    return Violation(
        "I20",
        pool,
        page,
        1,
        lambda: f"the table of request {rid} still names {len(table)} pages, first {page}",
    )
