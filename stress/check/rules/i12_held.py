"""I12: a page that a request's table names, or a lock holds, is on loan and is neither returned nor rebound under it.

A request that ends, or whose checkpoint repoints its row to the cache's copy, may give up what its own table names;
nobody may give up what another's does (sglang#29352: a tombstone's recovery replaced a page that others had locked).
What is locked may nobody give up, no component of it either, where locks are observed.
"""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace

from stress.check.event import Event, EventKind, request_of, with_arrays
from stress.check.history import blame
from stress.check.pool_shadow import PoolShadow
from stress.check.rules.rule import Report, Rule, Violation, such_pages
from stress.check.state import Shadow
from stress.check.table_change import first_difference


class Held(Rule):
    id = "I12"
    title = "a page in a request's table is not returned or rebound"
    needs = frozenset({"lends", "returns", "tables"})
    kinds = frozenset({EventKind.INTENT, EventKind.BIND, EventKind.HOLD})
    ends = True
    proved = True

    def __init__(self):
        self._reported: set[tuple[str, int]] = set()

    def check(self, event: Event, shadow: Shadow, report: Report) -> None:
        if event.kind is EventKind.HOLD:
            self._check_table(event, shadow, report)
        elif event.kind is EventKind.BIND:
            self._check_rebound(event, shadow, report)
        else:
            if event.peers is None:
                self._check_asked_back(event, shadow.pools[event.pool], shadow, report)
            if shadow.locks.held:
                self._check_locked(event, shadow, report)

    def end(self, event: None, shadow: Shadow, report: Report) -> None:
        for event in map(with_arrays, shadow.named_returns):
            pool = shadow.pools[event.pool]
            pages = pool.inside(event.pages)
            named = pages[(pool.tables[pages] > 0) & ~pool.on_loan[pages]].tolist()
            pages = [page for page in named if (event.pool, page) not in self._reported]
            if pages:
                report(_violation(event, pages, "returned", shadow))

    def _check_asked_back(self, event: Event, pool: PoolShadow, shadow: Shadow, report: Report) -> None:
        pages = pool.valid
        tables = pool.tables[pages]
        if not np.count_nonzero(tables):
            return
        held = pages[tables > self._is_own(event, pool, pages, shadow)].tolist()
        if held:
            self._reported.update((event.pool, page) for page in held)
            report(_violation(event, held, "asked back", shadow))

    def _check_locked(self, event: Event, shadow: Shadow, report: Report) -> None:
        edge = shadow.edge_into.get(event.pool)
        if event.peers is None:
            if edge is not None:
                return  # which source page they belong to is not said
            pages = shadow.pools[event.pool].valid
        else:
            pages = event.pages[edge.is_page(event.peers)]
        locked = shadow.locks.holders_in(event.pool)[pages] > 0
        if np.count_nonzero(locked):
            source = event if edge is None else replace(event, pool=edge.shape.source)
            new = [p for p in pages[locked].tolist() if (source.pool, p) not in self._reported]
            if new:
                self._reported.update((source.pool, page) for page in new)
                report(_locked(source, event.pool, new))

    def _check_rebound(self, event: Event, shadow: Shadow, report: Report) -> None:
        edge = shadow.edge_into[event.pool]
        old = edge.peer[event.pages]
        rebound = (old != edge.no_peer) & (event.peers != edge.no_peer) & (old != event.peers)
        if not np.count_nonzero(rebound):
            return
        pages = event.pages[rebound]
        own = self._is_own(event, edge.source, pages, shadow)
        held = pages[edge.source.tables[pages] > own].tolist()
        if held:
            named = replace(event, pool=edge.shape.source)
            report(_violation(named, held, "rebound", shadow))

    def _is_own(self, event: Event, pool: PoolShadow, pages: np.ndarray, shadow: Shadow) -> np.ndarray:
        """Mask: in the table of the request that the operation ends or repoints."""
        return shadow.may_give_up(pool, event.cause)[pages] == event.cause.operation

    def _check_table(self, event: Event, shadow: Shadow, report: Report) -> None:
        pool = shadow.pools[event.pool]
        old = shadow.tables.get(event.owner, event.pages[:0])
        gained = event.pages[first_difference(old, event.pages) :]
        gained = gained[(gained >= pool.first) & (gained < pool.end)]
        gone = gained[~pool.on_loan[gained] | pool.asked[gained]]
        if not len(gone):
            return
        page = int(gone[0])
        self._reported.update((event.pool, p) for p in gone.tolist())

        def message() -> str:
            what = "has been asked back" if pool.on_loan[page] else "is not on loan"
            return f"the table of request {event.cause.rid} names page {page}, which {what}{such_pages(len(gone))}"

        report(Violation("I12", event.pool, page, len(gone), message))


def _locked(event: Event, component: str, pages: list[int]) -> Violation:
    def message() -> str:
        return (
            f"{component} of page {pages[0]} asked back by {event.method} ({blame(event.cause)}) while it is locked"
            f"{such_pages(len(pages))}"
        )

    return Violation("I12", event.pool, pages[0], len(pages), message, event.cause, event.at_us)


def _violation(event: Event, pages: list[int], how: str, shadow: Shadow) -> Violation:
    page = pages[0]

    def message() -> str:
        holders = [request_of(owner) for owner, table in shadow.tables.items() if (table == page).any()]
        return (
            f"page {page} {how} by {event.method} ({blame(event.cause)}) while the table of request "
            f"{', '.join(map(str, holders[:4]))} names it{such_pages(len(pages))}"
        )

    return Violation("I12", event.pool, page, len(pages), message, event.cause, event.at_us)
