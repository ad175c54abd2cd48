"""I6: a lent page of a mapping's target has exactly one holder: the mapping, or a free that is pending.

One count at the end of each operation (lent == mapped + asked back) tells whether it holds; which page lost its
holder is searched only when it does not. A source page that comes back while its peer is still mapped shrinks the
target pool silently (sglang#36723): that is seen by itself, for the count still adds up then.
"""

from __future__ import annotations

import numpy as np

from stress.check.event import Event, EventKind
from stress.check.history import blame
from stress.check.masks import any_of
from stress.check.pool_shadow import EdgeShadow
from stress.check.rules.rule import Report, Rule, Violation, asker, such_pages
from stress.check.state import Shadow


class Holder(Rule):
    id = "I6"
    title = "a lent target page has exactly one holder"
    needs = frozenset({"lends", "returns", "mapping"})
    kinds = frozenset({EventKind.RETURN})
    proved = True
    ends = True

    def __init__(self):
        self._left_behind: list[tuple] = []  # (edge, source pages, their peers, cause, time)
        self._off: dict[str, int] = {}  # by target pool: pages without a holder that were reported
        self._known: set[tuple[str, int]] = set()

    def check(self, event: Event, shadow: Shadow, report: Report) -> None:
        for edge in shadow.edges_from[event.pool]:
            if not edge.shape.gives_back:
                continue  # its pages go with their row; an entry that is left behind is I4's
            pages = edge.source.valid
            peers = edge.peer[pages]
            live = edge.is_page(peers)
            if any_of(live):
                cause, at_us = asker(edge.source, int(pages[live][0]), event)
                self._left_behind.append((edge, pages[live], peers[live], cause, at_us))

    def end(self, event: None, shadow: Shadow, report: Report) -> None:
        left_behind, self._left_behind = self._left_behind, []
        for edge, pages, peers, cause, at_us in left_behind:
            still = (edge.holder[peers] == pages) & edge.target.on_loan[peers] & ~edge.source.on_loan[pages]
            if any_of(still):
                self._report_left_behind(edge, pages[still], peers[still], cause, at_us, report)
        for edge in shadow.edges:
            if not edge.shape.gives_back:
                continue
            target = edge.target
            off = target.lent - edge.mapped - target.asked_pages - target.orphans
            before = self._off.get(target.shape.name, 0)
            if off != before:
                self._off[target.shape.name] = off
                if off > before:
                    self._report_orphans(edge, report)

    def _report_left_behind(self, edge: EdgeShadow, pages, peers, cause, at_us, report: Report) -> None:
        page, peer, count = int(pages[0]), int(peers[0]), len(pages)
        source, target = edge.shape.source, edge.shape.target
        self._known.update((target, int(p)) for p in peers)

        def message() -> str:
            return (
                f"{source} page {page} came back ({blame(cause)}) while its {target} page {peer} is live: "
                f"nobody can free that any more{such_pages(count)}"
            )

        report(Violation("I6", target, peer, count, message, cause, at_us))

    def _report_orphans(self, edge: EdgeShadow, report: Report) -> None:
        target, name = edge.target, edge.shape.target
        lone = target.on_loan & (edge.holder < 0) & ~target.asked & ~target.orphan
        lone[: target.first] = False
        pages = [page for page in np.flatnonzero(lone).tolist() if (name, page) not in self._known]
        if not pages:
            return
        self._known.update((name, page) for page in pages)
        page, count = pages[0], len(pages)

        def message() -> str:
            source = edge.shape.source
            return f"page {page} is on loan, but no {source} page maps to it and no free is pending{such_pages(count)}"

        report(Violation("I6", name, page, count, message))
