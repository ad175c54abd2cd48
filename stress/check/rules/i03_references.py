"""I3 where pages are shared by count: a reference is given up by somebody who has one.

A count below zero is silent in the target: the page is on the free list already, nothing comes back, and the next who
takes it is one reference short (vLLM's `free_blocks` of a free block leaves a count of -1). Level 1; two gathers over
the pages that are given up.
"""

from __future__ import annotations

import numpy as np

from stress.check.event import Event, EventKind
from stress.check.history import blame
from stress.check.rules.rule import Report, Rule, Violation, such_pages
from stress.check.state import Shadow


class ReferencesGivenUp(Rule):
    id = "I3"
    title = "a reference that is given up was held"
    needs = frozenset({"references"})
    kinds = frozenset({EventKind.UNREF})

    def check(self, event: Event, shadow: Shadow, report: Report) -> None:
        pool, counts = shadow.pools[event.pool], shadow.references.counts(event.pool)
        pages, times = np.unique(pool.inside(event.pages), return_counts=True)
        held = 0 if counts is None else counts[pages]
        wrong = (times > held) & (pages >= pool.first) & (pages < pool.end)
        if not np.count_nonzero(wrong):
            return
        short, page = pages[wrong], int(pages[wrong][0])
        had = 0 if counts is None else int(counts[page])

        def message() -> str:
            what = "which nobody holds" if not had else f"of which {had} can be given up"
            return (
                f"{int(times[wrong][0])} references to page {page} given up by {event.method} "
                f"({blame(event.cause)}), {what}{such_pages(len(short))}"
            )

        report(Violation("I3", event.pool, page, len(short), message))
