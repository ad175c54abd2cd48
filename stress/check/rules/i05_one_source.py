"""I5: at most one source page maps to a target page, and none maps to one that is not on loan.

An entry that outlives its page hands a page of one request to another (sglang#27779). Within one operation an entry
may be written before the old one is cleared, so doubles and releases are judged at its end.
"""

from __future__ import annotations

import numpy as np

from stress.check.event import Event, EventKind, with_arrays
from stress.check.history import blame
from stress.check.pool_shadow import EdgeShadow
from stress.check.rules.rule import Report, Rule, Violation, such_pages
from stress.check.state import Shadow


class OneSource(Rule):
    id = "I5"
    title = "a target page has one source page at most, none after its release"
    needs = frozenset({"lends", "returns", "mapping"})
    kinds = frozenset({EventKind.BIND, EventKind.MAP})
    ends = True
    end_is_proved = True
    proved = True

    def check(self, event: Event, shadow: Shadow, report: Report) -> None:
        edge = shadow.edge_into[event.pool]
        pages, peers = event.pages, event.peers
        if event.kind is EventKind.MAP:
            wrong = np.flatnonzero(edge.peer[pages] != peers)
            if not len(wrong):
                return
            pages, peers = pages[wrong], peers[wrong]
        named = edge.is_page(peers)
        if np.count_nonzero(named) < len(named):
            pages, peers = pages[named], peers[named]
        free = ~edge.target.on_loan[peers]
        if np.count_nonzero(free):
            source, target = edge.shape.source, int(peers[free][0])
            owner, count = int(pages[free][0]), int(free.sum())

            def message() -> str:
                return (
                    f"{event.method} ({blame(event.cause)}) leaves {source} page {owner} mapped to page "
                    f"{target}, which is not on loan{such_pages(count)}"
                )

            report(Violation("I5", event.pool, target, count, message))

    def end(self, event: None, shadow: Shadow, report: Report) -> None:
        for edge in shadow.edges:
            for source, other, target in edge.doubled:
                if edge.peer[source] == target and edge.peer[other] == target:
                    report(_double(edge, source, other, target))
        for event in map(with_arrays, shadow.returns):
            edge = shadow.edge_into.get(event.pool)
            if edge is None:
                continue
            pages = edge.target.inside(event.pages)
            still = pages[(edge.holder[pages] >= 0) & ~edge.target.on_loan[pages]]
            if len(still):
                report(_outlived(event, edge, still))


def _double(edge: EdgeShadow, source: int, other: int, target: int) -> Violation:
    name = edge.shape.source

    def message() -> str:
        return f"{name} pages {other} and {source} both map to page {target}"

    return Violation("I5", edge.shape.target, target, 1, message)


def _outlived(event: Event, edge: EdgeShadow, pages: np.ndarray) -> Violation:
    page, name = int(pages[0]), edge.shape.source
    holder = int(edge.holder[page])

    def message() -> str:
        return (
            f"page {page} returned by {event.method} ({blame(event.cause)}) while {name} page {holder} "
            f"still maps to it{such_pages(len(pages))}"
        )

    return Violation("I5", event.pool, page, len(pages), message, event.cause, event.at_us)
