"""I15: a page that a transfer still reads or writes is not lent, and each transfer ends exactly once.

The faulty operation is the one that gave the page back although the transfer had not ended (vllm#52360: preemption
freed blocks while a store read them, so that a wrong KV was saved under the key; sglang#31427: a page was evicted under
a load). It does its harm when the page is lent, which may be in the same operation. A transfer may be cancelled right
after the free of its pages, so a page that is not lent at once is looked at when the operation is over.
A page that one transfer has twice is given up twice by it (vllm#42571). Costs a look at the pages of a lend or a return
while any transfer is under way, and at those of each transfer. Level 1.
"""

from __future__ import annotations

import numpy as np

from stress.check.event import Cause, Event, EventKind
from stress.check.history import blame
from stress.check.rules.rule import Report, Rule, Violation, asker, such_pages
from stress.check.state import Shadow
from stress.check.transfer_shadow import Transfer


class Transfers(Rule):
    id = "I15"
    title = "a page under transfer is not lent; a transfer ends once"
    needs = frozenset({"lends", "returns", "transfers"})
    kinds = frozenset({EventKind.LEND, EventKind.RETURN, EventKind.TRANSFER_BEGIN, EventKind.TRANSFER_END})
    ends = True
    end_is_proved = True
    proved_kinds = frozenset({EventKind.LEND, EventKind.RETURN})
    takes_lists = True

    def __init__(self):
        self._freed: dict[tuple[str, int], tuple[Cause, int]] = {}  # pages under transfer: who gave them back
        self._freed_now: list[tuple[str, int]] = []  # in the operation at hand

    def check(self, event: Event, shadow: Shadow, report: Report) -> None:
        kind, transfers = event.kind, shadow.transfers
        if kind is EventKind.LEND:
            if pages := transfers.busy_among(event.pool, event.pages):
                self._report(event.pool, pages, "is lent", shadow, report)
        elif kind is EventKind.RETURN:
            for page in transfers.busy_among(event.pool, event.pages):
                self._freed[event.pool, page] = asker(shadow.pools[event.pool], page, event)
                self._freed_now.append((event.pool, page))
        elif kind is EventKind.TRANSFER_END:
            if event.token not in transfers.open:
                report(_wrong_end(event, f"transfer {event.token} ended a second time ({event.method})"))
        elif event.pool not in shadow.edge_into:
            if event.token in transfers.open:
                report(_wrong_end(event, f"{event.method} {event.token} begins again before it has ended"))
            self._check_once(event, shadow, report)

    def _check_once(self, event: Event, shadow: Shadow, report: Report) -> None:
        pool = shadow.pools[event.pool]
        pages = pool.inside(np.asarray(event.pages, dtype=np.int64))
        repeated = pool.repeats(pages)
        if repeated is not None:
            twice = pages[repeated].tolist()
            more = such_pages(len(twice))
            text = f"{event.method} {event.token} ({blame(event.cause)}) has page {twice[0]} twice{more}"
            report(Violation("I15", event.pool, twice[0], len(twice), lambda: text))

    def end(self, event: None, shadow: Shadow, report: Report) -> None:
        if not self._freed_now:
            return
        freed, self._freed_now = self._freed_now, []
        for name in dict.fromkeys(name for name, _ in freed):
            pages = [page for pool, page in freed if pool == name and not shadow.pools[name].on_loan[page]]
            if pages := shadow.transfers.busy_among(name, pages):
                self._report(name, pages, "is on the free list", shadow, report)

    def _report(self, pool: str, pages: list[int], what: str, shadow: Shadow, report: Report) -> None:
        page = pages[0]
        cause, at_us = self._freed.get((pool, page), (None, None))

        def message() -> str:
            transfer = _transfer_of(shadow, pool, page)
            begun = f"operation {transfer.cause.operation} ({blame(transfer.cause)})"
            freed = "" if cause is None else f"; {blame(cause)} gave it back in operation {cause.operation}"
            verb = "reads" if transfer.kind == "offload" else "writes"
            return (
                f"page {page} {what} while the {transfer.kind} that began in {begun} still {verb} it{freed}"
                f"{such_pages(len(pages))}"
            )

        report(Violation("I15", pool, page, len(pages), message, cause, at_us))


def _transfer_of(shadow: Shadow, pool: str, page: int) -> Transfer:
    """The first unfinished transfer that has the page."""
    for transfer in shadow.transfers.open.values():
        for name, pages in ((transfer.pool, transfer.pages), *transfer.peers):
            if name == pool and (pages == page).any():
                return transfer
    raise LookupError(f"no transfer has {pool} page {page}")


def _wrong_end(event: Event, text: str) -> Violation:
    return Violation("I15", event.pool, -1, 1, lambda: f"{text} ({blame(event.cause)})")
