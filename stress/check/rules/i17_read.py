"""I17 where the layers of a model have a table a group: what a forward pass reads was written.

Asked of all whole pages that the pass sees in a group: they were computed, found written, or brought by a load, or one
of the pass's own requests was scheduled to write them. A load that came short and counts as whole leaves pages that
nothing has written, and their request goes on (sglang#38352, dynamo#15079). The faulty operation is the one in which
that load ended. Level 1; two gathers over what is read.
"""

from __future__ import annotations

import numpy as np

from stress.check.event import Event, EventKind
from stress.check.history import blame
from stress.check.rules.rule import Report, Rule, Violation, such_pages
from stress.check.state import Shadow


class Read(Rule):
    id = "I17"
    title = "what a forward pass reads was written"
    needs = frozenset({"lends", "writes", "reads", "references"})
    kinds = frozenset({EventKind.READ})

    def __init__(self) -> None:
        self._reported: set[tuple[str, int, int]] = set()  # pool, page, the lend that it was of

    def check(self, event: Event, shadow: Shadow, report: Report) -> None:
        pages = event.pages if event.method == "whole" else event.pages[:-1]
        written = shadow.transfers.is_written(event.pool, pages)
        if np.count_nonzero(written) < len(pages):
            self._judge(event, pages[~written], shadow, report)

    def _judge(self, event: Event, pages: np.ndarray, shadow: Shadow, report: Report) -> None:
        pool, transfers = shadow.pools[event.pool], shadow.transfers
        pages = pages[(pages >= pool.first) & (pages < pool.end)]  # a hole is I9's
        pages = pages[~shadow.promises.in_pass(event.pool, pages)]
        keys = [(event.pool, page, int(pool.lent_by[page])) for page in pages.tolist()]
        new = [key for key in keys if key not in self._reported]
        if not new:
            return
        self._reported.update(new)
        page = new[0][1]
        index = transfers.end_of_load(event.pool, page)
        cause = shadow.causes[index or new[0][2]]

        def message() -> str:
            why = "nothing has written it since it was lent in"
            if index:
                why = "its load ended without it in"
            where = f" of {event.table}" if event.table else ""
            return (
                f"request {event.cause.rid} reads page {page}{where}, but {why} operation {cause.operation} "
                f"({blame(cause)}){such_pages(len(new))}"
            )

        report(Violation("I17", event.pool, page, len(new), message, cause))
