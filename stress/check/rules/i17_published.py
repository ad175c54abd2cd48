"""I17 where a prefix is published before the forward pass: what is found by a key is written, or will be.

A page is in the prefix map from the moment on that its slots are given, and its own request writes it in the pass to
come. So a page must not stay in the map when its request loses it before that (vllm#57580; #43569 is to roll such keys
back), nor be there while a load has still to bring it, nor be found by the key of what was in it before it was lent
anew (vllm#4761). Asked when an operation is over, of what was published and has not been written since; of an older key
at the lend. i17_found.py says the same when somebody finds the page. Level 1; two gathers over the pages of the pass.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from stress.check.event import STILL_FOUND, Event, EventKind
from stress.check.history import blame
from stress.check.rules.rule import Report, Rule, Violation, such_pages
from stress.check.state import Shadow


class _Ahead(NamedTuple):
    """Pages that were published and not written yet, the lend of each in which that was, and whose they are."""

    pages: np.ndarray
    lends: np.ndarray
    rid: int

    def where(self, mask: np.ndarray) -> _Ahead:
        return _Ahead(self.pages[mask], self.lends[mask], self.rid)


class Published(Rule):
    id = "I17"
    title = "what is found by a key is written, or will be"
    needs = frozenset({"lends", "returns", "writes", "references", "publications"})
    kinds = frozenset({EventKind.PUBLISHED, EventKind.FORGOTTEN})
    ends = True

    def __init__(self) -> None:
        self._ahead: dict[str, list[_Ahead]] = {}  # by pool

    def check(self, event: Event, shadow: Shadow, report: Report) -> None:
        ahead = self._ahead.setdefault(event.pool, [])
        if event.kind is EventKind.FORGOTTEN:
            kept = [one.where(~np.isin(one.pages, event.pages)) for one in ahead]
            self._ahead[event.pool] = [one for one in kept if len(one.pages)]
        elif event.token == STILL_FOUND:
            report(_still_found(event))
        else:
            lends = shadow.pools[event.pool].lent_by[event.pages]
            ahead.append(_Ahead(event.pages, lends, event.cause.rid))

    def end(self, event: None, shadow: Shadow, report: Report) -> None:
        for name, ahead in self._ahead.items():
            if ahead:
                loads = shadow.transfers.to_be_loaded(name)
                left = (self._look(name, one, loads, shadow, report) for one in ahead)
                self._ahead[name] = [one for one in left if one is not None]

    def _look(
        self, name: str, ahead: _Ahead, loads: np.ndarray, shadow: Shadow, report: Report
    ) -> _Ahead | None:
        """What is still to be written of it. `loads`: pages that loads have still to bring."""
        pool, transfers, pages = shadow.pools[name], shadow.transfers, ahead.pages
        open_yet = ~transfers.is_written(name, pages) & (pool.lent_by[pages] == ahead.lends)
        if not np.count_nonzero(open_yet):
            return None
        lost = open_yet & ~pool.on_loan[pages]
        loading = open_yet & ~lost & np.isin(pages, loads)
        for wrong, why in (
            (lost, "whose request has lost it, and nothing will write it"),
            (loading, "which a load has still to bring"),
        ):
            if np.count_nonzero(wrong):
                report(_published(name, pages[wrong], ahead.rid, why))
        left = open_yet & ~(lost | loading)
        return ahead.where(left) if np.count_nonzero(left) else None


def _still_found(event: Event) -> Violation:
    page, count = int(event.pages[0]), len(event.pages)

    def message() -> str:
        return (
            f"page {page} was lent anew ({blame(event.cause)}) and is still found by the key of what was in it"
            f"{such_pages(count)}"
        )

    return Violation("I17", event.pool, page, count, message)


def _published(pool: str, pages: np.ndarray, rid: int, why: str) -> Violation:
    page = int(pages[0])
    return Violation(
        "I17",
        pool,
        page,
        len(pages),
        lambda: f"page {page} is found by a key of request {rid}, {why}{such_pages(len(pages))}",
    )
