"""I1: only lendable page ids cross the pool's border; padding is never lent and never comes back.

The page ids of a deferred free come back at the flush, but the fault lies where they were read: the finding names the
operation whose free read no peer (sglang#38519), and the history is that of the source page whose entry it read.
"""

from __future__ import annotations

import numpy as np

from stress.check.event import Event, EventKind
from stress.check.history import blame
from stress.check.pool_shadow import Intent, PoolShadow
from stress.check.rules.rule import Report, Rule, Violation
from stress.check.state import Shadow


class Padding(Rule):
    id = "I1"
    title = "padding is neither lent nor returned"
    needs = frozenset({"lends", "returns"})
    kinds = frozenset({EventKind.LEND, EventKind.RETURN, EventKind.FREE_LIST})
    proved = True

    def check(self, event: Event, shadow: Shadow, report: Report) -> None:
        pool = shadow.pools[event.pool]
        if event.kind is EventKind.FREE_LIST:
            if len(pool.outside) > pool.surplus_outside:
                report(_on_free_list(event, pool))
            return
        if not len(pool.outside):
            return
        if event.kind is EventKind.LEND:
            report(_crossed(event, pool, "lent"))
            return
        guilty = _reader_of_no_peer(pool, shadow)
        if guilty is None:
            report(_crossed(event, pool, "returned"))
        else:
            report(_returned_at_flush(event, pool, guilty, shadow))


def _what(pool: PoolShadow, page: int) -> str:
    return "padding" if page == pool.null else f"outside {pool.first}..{pool.end - 1}"


def _crossed(event: Event, pool: PoolShadow, how: str) -> Violation:
    """A wrong id was `how`: lent or returned."""
    page, count = int(pool.outside[0]), len(pool.outside)

    def message() -> str:
        return (
            f"page {page} ({_what(pool, page)}) {how} {_times(count)} by {event.method} in operation "
            f"{event.cause.operation} ({blame(event.cause)})"
        )

    return Violation("I1", event.pool, page, count, message)


def _on_free_list(event: Event, pool: PoolShadow) -> Violation:
    page, count = int(pool.outside[0]), len(pool.outside) - pool.surplus_outside

    def message() -> str:
        return (
            f"page {page} ({_what(pool, page)}) is on the free list {_times(count)} more than was seen to come; "
            "found by a sweep: a write that no watched method made"
        )

    return Violation("I1", event.pool, page, count, message)


def _returned_at_flush(event: Event, pool: PoolShadow, guilty: Intent, shadow: Shadow) -> Violation:
    edge = shadow.edge_into[event.pool]
    page, count = int(pool.outside[0]), len(pool.outside)
    sources = guilty.sources[guilty.pages == edge.no_peer]
    source = edge.shape.source

    def message() -> str:
        reader = f"{blame(guilty.cause)} read no peer for {source} {_span(sources)}"
        if guilty.cause.operation == event.cause.operation:
            return f"page {page} returned {_times(count)} by {guilty.method} ({reader})"
        return (
            f"page {page} returned {_times(count)} at the flush of operation {event.cause.operation} "
            f"({guilty.method}, {reader})"
        )

    return Violation(
        "I1", event.pool, page, count, message, guilty.cause, guilty.at_us, (source, int(sources[0]))
    )


def _reader_of_no_peer(pool: PoolShadow, shadow: Shadow) -> Intent | None:
    """The first pending free of the pool that read an entry without a peer."""
    edge = shadow.edge_into.get(pool.shape.name)
    if edge is None:
        return None
    for intent in pool.intents:
        if intent.sources is not None and (intent.pages == edge.no_peer).any():
            return intent
    return None


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _span(pages: np.ndarray) -> str:
    if len(pages) == 1:
        return f"page {int(pages[0])}"
    more = "" if len(pages) == 2 else f", .. ({len(pages)} in all)"
    return f"pages {int(pages[0])}, {int(pages[1])}{more}"
