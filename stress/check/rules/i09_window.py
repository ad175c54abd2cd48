"""I9: what a forward pass reads of a request's window is lent, mapped, and still what the request was given.

Positions [max(pos - window, swa_from), pos) of a running request, at each forward pass. A page of them that has come
back and was lent again is somebody else's, although the row still names it; a hole is nobody's. Blame goes to the
operation that took the page or its peer away: the pass only reads what is left (sglang#22470, #29860: a frontier one
page too far).
Level 1. Two or three gathers on the window's pages, some 6 us a request and forward pass that is told.
"""

from __future__ import annotations

import numpy as np

from stress.check.event import Cause, Event, EventKind
from stress.check.history import blame
from stress.check.pool_shadow import EdgeShadow
from stress.check.rules.rule import Report, Rule, Violation, such_pages
from stress.check.state import Shadow


class Window(Rule):
    id = "I9"
    title = "what a forward pass reads of its window is lent, mapped and of the same generation"
    needs = frozenset({"lends", "returns", "tables", "reads"})
    kinds = frozenset({EventKind.READ})

    def __init__(self):
        self._reported: set[tuple[int, int]] = set()

    def check(self, event: Event, shadow: Shadow, report: Report) -> None:
        edge = shadow.edge_into.get(event.pool)
        pages = event.pages
        source = shadow.pools[event.pool] if edge is None else edge.source
        since = shadow.gained_in(event.owner, event.token, len(pages))
        bad = ~source.on_loan[pages] | source.asked[pages]
        bad |= source.lent_by[pages] > since
        if edge is not None:
            peers = edge.peer[pages]
            bad |= edge.holder[peers] != pages
            bad |= ~edge.target.on_loan[peers] | edge.target.asked[peers]
        if np.count_nonzero(bad):
            self._judge(event, edge, pages[bad], since[bad], shadow, report)

    def _judge(
        self, event: Event, edge: EdgeShadow | None, pages, since, shadow: Shadow, report: Report
    ) -> None:
        rid = event.cause.rid
        new = [i for i, page in enumerate(pages.tolist()) if (rid, page) not in self._reported]
        if not new:
            return
        self._reported.update((rid, int(pages[i])) for i in new)
        page, index = int(pages[new[0]]), int(since[new[0]])
        source = shadow.pools[event.pool] if edge is None else edge.source
        what, cause = self._what_happened(page, index, source, edge, shadow)

        def message() -> str:
            by = f" ({blame(cause)})" if cause is not None else ""
            return f"request {rid} reads page {page} in its window, {what}{by}{such_pages(len(new))}"

        at_us = None if cause is None else event.at_us
        report(Violation("I9", source.shape.name, page, len(new), message, cause, at_us))

    def _what_happened(
        self, page: int, since: int, source, edge: EdgeShadow | None, shadow: Shadow
    ) -> tuple[str, Cause | None]:
        if page == source.null:
            cause = shadow.causes[since] if since < shadow.causes.following else None
            when = f" since operation {cause.operation}" if cause is not None else ""
            return f"where its table has a hole{when}", cause
        if source.lent_by[page] > since:
            cause = shadow.causes[source.lent_by[page]]
            return f"which was lent again in operation {cause.operation}", cause
        if not source.on_loan[page] or source.asked[page]:
            return "which is not its any more", None
        peer, target = int(edge.peer[page]), edge.shape.target
        if peer == edge.no_peer:
            taken = shadow.last_unmap(target, page)
            when = f" since operation {taken.cause.operation}" if taken is not None else ""
            return f"which has no {target} page{when}", None if taken is None else taken.cause
        return f"whose {target} page {peer} is another page's or not on loan", None
