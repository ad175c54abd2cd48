"""I12 where pages are shared by count: as many references to a page as tables and transfers that name it.

One too few, and the page goes to somebody else while a table still names it; one too many, and it never comes back.
Looked at when an operation is over, for the pages that were taken, given up, or named in another way in it. What is off
is reported when it changes. Level 1; three gathers over those pages.
"""

from __future__ import annotations

import numpy as np

from stress.check.rules.rule import Report, Rule, Violation, such_pages
from stress.check.state import Shadow


class Counted(Rule):
    id = "I12"
    title = "a page has as many references as holders"
    needs = frozenset({"lends", "returns", "tables", "references"})
    kinds = frozenset()
    ends = True

    def __init__(self):
        self._off: dict[tuple[str, int], int] = {}  # page -> by how much, as reported

    def end(self, event: None, shadow: Shadow, report: Report) -> None:
        for name, touched in shadow.references.touched.items():
            self._check(name, np.unique(np.concatenate(touched)), shadow, report)

    def _check(self, name: str, pages: np.ndarray, shadow: Shadow, report: Report) -> None:
        pool = shadow.pools[name]
        pages = pages[(pages >= pool.first) & (pages < pool.end)]
        holders = pool.tables[pages] + shadow.transfers.of(name).busy[pages]
        off = shadow.references.counts(name)[pages] - holders
        known = self._off
        if not known and not np.count_nonzero(off):
            return
        new = []
        for page, by in zip(pages.tolist(), off.tolist(), strict=True):
            if known.get((name, page), 0) != by:
                known[name, page] = by
                if by:
                    new.append(page)
                else:
                    del known[name, page]
        if new:
            report(_violation(name, new, shadow))


def _violation(name: str, pages: list[int], shadow: Shadow) -> Violation:
    page = pages[0]
    references, tables = int(shadow.references.counts(name)[page]), int(shadow.pools[name].tables[page])
    moving = int(shadow.transfers.of(name).busy[page])

    def message() -> str:
        return (
            f"page {page} has {references} references, and {tables} tables and {moving} transfers name it"
            f"{such_pages(len(pages))}"
        )

    return Violation("I12", name, page, len(pages), message)
