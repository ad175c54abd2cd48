"""I17 where a prefix is published before the forward pass: what a request finds, or a transfer stores, was written.

A page is in the prefix map from the moment on that its slots are given. A request that is scheduled behind in the same
step may find it: it is promised, where the target's own scheduler decides. If its request is taken out of the step
again, nothing will ever write it, and a later request starts beyond what was computed (vllm#57580); the faulty
operation is that step. The target's own counts are right all the while. Asked of each hit, before it is taken, again at
the end of its operation where it was promised only, and of each store that has ended: it copies after the pass that is
under way, and what is copied earlier is for I16 to see. Level 1; two gathers over the hit.
"""

from __future__ import annotations

import numpy as np

from stress.check.event import Event, EventKind
from stress.check.history import blame
from stress.check.rules.rule import Report, Rule, Violation, such_pages
from stress.check.state import Shadow


class Found(Rule):
    id = "I17"
    title = "what is found in the prefix cache, or stored, was written"
    needs = frozenset({"lends", "writes", "references"})
    kinds = frozenset({EventKind.HIT, EventKind.TRANSFER_END})
    ends = True

    def __init__(self):
        self._reported: set[tuple[str, int, int]] = set()  # pool, page, the lend that it was of
        self._trusted: list[tuple[Event, np.ndarray]] = []  # hits on what was promised only

    def check(self, event: Event, shadow: Shadow, report: Report) -> None:
        if event.kind is EventKind.TRANSFER_END:
            transfer = shadow.transfers.open.get(event.token)
            if transfer is None or transfer.kind != "offload":
                return
        pool = shadow.pools[event.pool]
        pages = event.pages[(event.pages >= pool.first) & (event.pages < pool.end)]
        pages = pages[~shadow.transfers.is_written(event.pool, pages)]
        if not len(pages):
            return
        promised = shadow.promises.are_made(event.pool, pages)
        if event.kind is EventKind.HIT and np.count_nonzero(promised):
            self._trusted.append((event, pages[promised]))
            pages = pages[~promised]
        self._judge(event, pages, shadow, report)

    def end(self, event: None, shadow: Shadow, report: Report) -> None:
        trusted, self._trusted = self._trusted, []
        for hit, pages in trusted:
            kept = shadow.promises.are_made(hit.pool, pages) | shadow.transfers.is_written(hit.pool, pages)
            self._judge(hit, pages[~kept], shadow, report)

    def _judge(self, event: Event, pages: np.ndarray, shadow: Shadow, report: Report) -> None:
        pool = shadow.pools[event.pool]
        key = [(event.pool, page, int(pool.lent_by[page])) for page in pages.tolist()]
        new = [at for at in key if at not in self._reported]
        if not new:
            return
        self._reported.update(new)
        page, lent = new[0][1], shadow.causes[new[0][2]]
        gone = shadow.causes[shadow.promises.withdrawal(event.pool, page)]
        short = shadow.causes[shadow.transfers.end_of_load(event.pool, page)]
        found = event.kind is EventKind.HIT

        def message() -> str:
            who = f"request {event.cause.rid} finds" if found else f"offload {event.token} has stored"
            where = f" of {event.table}" if event.table else ""
            why = f"since it was lent in operation {lent.operation} ({blame(lent)})"
            if gone.operation:
                why = f"because its request lost its slots in the same step, operation {gone.operation} ({blame(gone)})"
            elif short.operation:
                why = f"and its load ended without it in operation {short.operation} ({blame(short)})"
            return f"{who} page {page}{where}, but nothing has written it {why}{such_pages(len(new))}"

        cause = next((one for one in (gone, short) if one.operation), lent)
        report(Violation("I17", event.pool, page, len(new), message, cause if found else None))
