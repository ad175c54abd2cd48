"""I17 where a load is private to its request until it has landed: what did not come stays with nobody else.

A load that is cancelled, fails or comes short leaves pages that nothing has written. At the end of that operation each
of them is free, asked back, or still named by its request's table. One that is on loan and in no table is in the cache,
where the next request finds it. This sees at its own operation what `i17_written.py` sees when that request comes.
Costs nothing unless a load ends so; then a few gathers over its pages. Level 1.
"""

from __future__ import annotations

import numpy as np

from stress.check.event import Event, EventKind
from stress.check.rules.rule import Report, Rule, Violation, such_pages
from stress.check.state import Shadow


class GivenBack(Rule):
    id = "I17"
    title = "what a load did not bring stays with nobody else"
    needs = frozenset({"lends", "returns", "tables", "transfers", "private_loads"})
    kinds = frozenset({EventKind.TRANSFER_END})
    ends = True

    def __init__(self):
        # Pool, how the load ended, its pages without content.
        self._missing: list[tuple[str, str, np.ndarray]] = []

    def check(self, event: Event, shadow: Shadow, report: Report) -> None:
        transfer = shadow.transfers.open.get(event.token)
        if transfer is not None and transfer.kind == "load" and len(event.pages) < len(transfer.pages):
            self._missing.append((event.pool, event.method, transfer.pages[len(event.pages) :]))

    def end(self, event: None, shadow: Shadow, report: Report) -> None:
        if not self._missing:
            return
        missing, self._missing = self._missing, []
        for name, how, pages in missing:
            pool = shadow.pools[name]
            kept = pool.on_loan[pages] & ~pool.asked[pages] & (pool.tables[pages] == 0)
            kept &= ~shadow.transfers.is_written(name, pages)
            if np.count_nonzero(kept):
                report(_kept(name, how, pages[kept]))


def _kept(pool: str, how: str, pages: np.ndarray) -> Violation:
    page, count = int(pages[0]), len(pages)
    ended = "came short" if how == "done" else f"was {how}" if how == "cancelled" else how
    return Violation(
        "I17",
        pool,
        page,
        count,
        lambda: f"page {page} is on loan in no request's table, and its load {ended}{such_pages(count)}",
    )
