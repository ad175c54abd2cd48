"""I2 inside one request: a page has one place in its tables, where the layers of a model have a table a group.

A page that two groups' tables name holds the keys and values of one of them, and the other reads those. The counts are
right all the while, for each table holds its reference (vllm#33775: blocks for tokens of a connector were taken from
among another group's hit, before that was touched). Looked at when an operation is over, for within it a page may go
from one table to another. Level 1; a look at what tables have gained.
"""

from __future__ import annotations

import numpy as np

from stress.check.event import Event, EventKind, request_of
from stress.check.history import blame
from stress.check.rules.rule import Report, Rule, Violation, such_pages
from stress.check.state import Shadow
from stress.check.table_change import first_difference


class OnePlace(Rule):
    id = "I2"
    title = "a page has one place in a request's tables"
    needs = frozenset({"tables", "references"})
    kinds = frozenset({EventKind.HOLD})
    ends = True

    def __init__(self):
        self._tables: dict[int, set[str]] = {}  # of each request, those that it has
        self._gained: list[tuple[Event, np.ndarray]] = []

    def check(self, event: Event, shadow: Shadow, report: Report) -> None:
        rid, tables = event.cause.rid, self._tables
        if not len(event.pages):
            named = tables.get(rid, set())
            named.discard(event.table)
            if not named:
                tables.pop(rid, None)
            return
        tables.setdefault(rid, set()).add(event.table)
        old = shadow.tables.get(event.owner, event.pages[:0])
        gained = event.pages[first_difference(old, event.pages) :]
        if len(gained):
            self._gained.append((event, gained))

    def end(self, event: None, shadow: Shadow, report: Report) -> None:
        gained, self._gained = self._gained, []
        said: set[tuple[int, int]] = set()
        for told, pages in gained:
            pool, rid = shadow.pools[told.pool], told.cause.rid
            once = pages[(pages >= pool.first) & (pages < pool.end)]
            suspects = once[pool.tables[once] > 1]
            if not len(suspects):
                continue
            own = {
                table: shadow.tables.get((rid, table) if table else rid, pages[:0])
                for table in sorted(self._tables.get(rid, ()))
            }
            places = sum(np.count_nonzero(table[:, None] == suspects, axis=0) for table in own.values())
            twice = [page for page in suspects[places > 1].tolist() if (rid, page) not in said]
            if twice:
                said.update((rid, page) for page in twice)
                report(_violation(told, twice, own))


def _violation(event: Event, pages: list[int], own: dict[str, np.ndarray]) -> Violation:
    page, rid = pages[0], request_of(event.owner)

    def message() -> str:
        places = [
            f"place {place} of {table or 'its table'}"
            for table, named in own.items()
            for place in np.flatnonzero(named == page).tolist()
        ]
        return (
            f"request {rid} has page {page} in {' and '.join(places)} after {blame(event.cause)}"
            f"{such_pages(len(pages))}"
        )

    return Violation("I2", event.pool, page, len(pages), message, event.cause, event.at_us)
