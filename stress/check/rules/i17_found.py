"""I17 where a prefix is published before the forward pass: what a request finds, or a transfer stores, was written.

A page is in the prefix map from the moment on that its slots are given. If its request is taken out of the step again,
nothing will ever write it, and a later request starts beyond what was computed (vllm#57580). The target's own counts
are right all the while. Asked of each hit, before it is taken, and of each store that has ended: it copies after the
pass that is under way. Level 1; one gather over the hit.
"""

from __future__ import annotations

from stress.check.event import Event, EventKind
from stress.check.history import blame
from stress.check.rules.rule import Report, Rule, Violation, such_pages
from stress.check.state import Shadow


class Found(Rule):
    id = "I17"
    title = "what is found in the prefix cache, or stored, was written"
    needs = frozenset({"lends", "writes", "references"})
    kinds = frozenset({EventKind.HIT, EventKind.TRANSFER_END})

    def __init__(self):
        self._reported: set[tuple[str, int, int]] = set()  # pool, page, the lend that it was of

    def check(self, event: Event, shadow: Shadow, report: Report) -> None:
        if event.kind is EventKind.TRANSFER_END:
            transfer = shadow.transfers.open.get(event.token)
            if transfer is None or transfer.kind != "offload":
                return
        pool = shadow.pools[event.pool]
        pages = event.pages[(event.pages >= pool.first) & (event.pages < pool.end)]
        wrong = pages[~shadow.transfers.is_written(event.pool, pages)]
        key = [(event.pool, page, int(pool.lent_by[page])) for page in wrong.tolist()]
        new = [at for at in key if at not in self._reported]
        if not new:
            return
        self._reported.update(new)
        page, lent = new[0][1], shadow.causes[new[0][2]]
        found = event.kind is EventKind.HIT

        def message() -> str:
            who = f"request {event.cause.rid} finds" if found else f"offload {event.token} has stored"
            where = f" of {event.table}" if event.table else ""
            return (
                f"{who} page {page}{where}, but nothing has written it since it was lent in operation "
                f"{lent.operation} ({blame(lent)}){such_pages(len(new))}"
            )

        report(Violation("I17", event.pool, page, len(new), message, lent if found else None))
