"""I17 where a prefix is published before the forward pass: what is found by a key is written, or will be.

A page is in the prefix map from the moment on that its slots are given, and its own request writes it in the pass to
come. So a page must not stay in the map when its request loses it before that (vllm#57580; #43569 is to roll such keys
back), nor be there while a load has still to bring it, nor be found by the key of what was in it before it was lent
anew (vllm#4761). Asked when an operation is over, of what was published and has not been written since; of an older key
at the lend. i17_found.py says the same when somebody finds the page. Level 1; two gathers over the pages of the pass.
"""

from __future__ import annotations

import numpy as np

from stress.check.event import Event, EventKind
from stress.check.history import blame
from stress.check.rules.rule import Report, Rule, Violation, such_pages
from stress.check.state import Shadow

STILL = 1  # the token of a PUBLISHED that tells of an older key


class Published(Rule):
    id = "I17"
    title = "what is found by a key is written, or will be"
    needs = frozenset({"lends", "returns", "writes", "references", "publications"})
    kinds = frozenset({EventKind.PUBLISHED, EventKind.FORGOTTEN})
    ends = True

    def __init__(self) -> None:
        # By pool: page -> the lend that it was published in, and whose it is; those that are not written yet.
        self._ahead: dict[str, dict[int, tuple[int, int]]] = {}

    def check(self, event: Event, shadow: Shadow, report: Report) -> None:
        ahead = self._ahead.setdefault(event.pool, {})
        if event.kind is EventKind.FORGOTTEN:
            for page in event.pages.tolist():
                ahead.pop(page, None)
        elif event.token == STILL:
            report(_still_found(event))
        else:
            pages = event.pages[~shadow.transfers.is_written(event.pool, event.pages)]
            lent_by, rid = shadow.pools[event.pool].lent_by, event.cause.rid
            ahead.update((page, (int(lent_by[page]), rid)) for page in pages.tolist())

    def end(self, event: None, shadow: Shadow, report: Report) -> None:
        for name, ahead in self._ahead.items():
            if ahead:
                self._look(name, ahead, shadow, report)

    def _look(self, name: str, ahead: dict[int, tuple[int, int]], shadow: Shadow, report: Report) -> None:
        pool, transfers = shadow.pools[name], shadow.transfers
        pages = np.fromiter(ahead, dtype=np.int64, count=len(ahead))
        lends = np.fromiter((lend for lend, _ in ahead.values()), dtype=np.int64, count=len(ahead))
        settled = transfers.is_written(name, pages) | (pool.lent_by[pages] != lends)
        lost = ~settled & ~pool.on_loan[pages]
        loading = ~settled & ~lost & np.isin(pages, transfers.to_be_loaded(name))
        for wrong, why in (
            (lost, "whose request has lost it, and nothing will write it"),
            (loading, "which a load has still to bring"),
        ):
            if np.count_nonzero(wrong):
                report(_published(name, pages[wrong], ahead, why))
        for page in pages[settled | lost | loading].tolist():
            del ahead[page]


def _still_found(event: Event) -> Violation:
    page, count = int(event.pages[0]), len(event.pages)

    def message() -> str:
        return (
            f"page {page} was lent anew ({blame(event.cause)}) and is still found by the key of what was in it"
            f"{such_pages(count)}"
        )

    return Violation("I17", event.pool, page, count, message)


def _published(pool: str, pages: np.ndarray, ahead: dict[int, tuple[int, int]], why: str) -> Violation:
    page, rid = int(pages[0]), ahead[int(pages[0])][1]
    return Violation(
        "I17",
        pool,
        page,
        len(pages),
        lambda: f"page {page} is found by a key of request {rid}, {why}{such_pages(len(pages))}",
    )
