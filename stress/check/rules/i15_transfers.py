"""I15: a page that a transfer still reads or writes is not lent, and each transfer ends exactly once.

The faulty operation is the one that gave the page back although the transfer had not ended (vllm#52360: preemption
freed blocks while a store read them, so that a wrong KV was saved under the key; sglang#31427: a page was evicted under
a load). Whether that does harm shows when the page is lent: a transfer that ends before was lucky, or was cancelled in
time. Costs a look at the pages of a lend or a return while any transfer is under way, else nothing. Level 1.
"""

from __future__ import annotations

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
    takes_lists = True

    def __init__(self):
        self._freed: dict[tuple[str, int], tuple[Cause, int]] = {}  # pages under transfer: who gave them back

    def check(self, event: Event, shadow: Shadow, report: Report) -> None:
        kind, transfers = event.kind, shadow.transfers
        if kind is EventKind.LEND:
            if pages := transfers.busy_among(event.pool, event.pages):
                self._lent(event, pages, shadow, report)
        elif kind is EventKind.RETURN:
            for page in transfers.busy_among(event.pool, event.pages):
                self._freed[event.pool, page] = asker(shadow.pools[event.pool], page, event)
        elif kind is EventKind.TRANSFER_END:
            if event.token not in transfers.open:
                report(_wrong_end(event, f"transfer {event.token} ended a second time ({event.method})"))
        elif event.pool not in shadow.edge_into and event.token in transfers.open:
            report(_wrong_end(event, f"{event.method} {event.token} begins again before it has ended"))

    def _lent(self, event: Event, pages: list[int], shadow: Shadow, report: Report) -> None:
        page = pages[0]
        cause, at_us = self._freed.get((event.pool, page), (None, None))

        def message() -> str:
            transfer = _transfer_of(shadow, event.pool, page)
            begun = f"operation {transfer.cause.operation} ({blame(transfer.cause)})"
            freed = "" if cause is None else f"; {blame(cause)} gave it back in operation {cause.operation}"
            verb = "reads" if transfer.kind == "offload" else "writes"
            return (
                f"page {page} is lent while the {transfer.kind} that began in {begun} still {verb} it{freed}"
                f"{such_pages(len(pages))}"
            )

        report(Violation("I15", event.pool, page, len(pages), message, cause, at_us))


def _transfer_of(shadow: Shadow, pool: str, page: int) -> Transfer:
    """The first unfinished transfer that has the page."""
    for transfer in shadow.transfers.open.values():
        for name, pages in ((transfer.pool, transfer.pages), *transfer.peers):
            if name == pool and (pages == page).any():
                return transfer
    raise LookupError(f"no transfer has {pool} page {page}")


def _wrong_end(event: Event, text: str) -> Violation:
    return Violation("I15", event.pool, -1, 1, lambda: f"{text} ({blame(event.cause)})")
