"""I17: what a request finds in the prefix cache, reads of a load, or stores, has been written.

A page is written when the forward pass has committed all its positions, or when a load has brought it (sglang
`release_request` up to 0.5.21: a load that is cancelled before it starts stays in the tree; sglang#38352: a short load
is taken for a whole one). Asked when a request is admitted, of its hit, where a page that no load will write any more
is wrong at once; when it first commits, of all that it was given, for a load that was under way must have landed by
then; and when a store begins. The faulty operation is the one in which the load ended. SWA parts that a transfer moves
exist: those of all pages that a store takes with them, and that of a load's last page. Ranks of a group that agreed on
too much are seen by what each then reads. Costs two gathers over the hit of a request, one over a store. Level 1.
"""

from __future__ import annotations

import numpy as np

from stress.check.event import Event, EventKind
from stress.check.history import blame
from stress.check.masks import all_of
from stress.check.rules.rule import Report, Rule, Violation, such_pages
from stress.check.state import Shadow

# By themselves: up to Python 3.11 a member is looked up on its class at the price of a call.
_TRANSFER_BEGIN, _WRITTEN = EventKind.TRANSFER_BEGIN, EventKind.WRITTEN


class Written(Rule):
    id = "I17"
    title = "what is matched, read after a load, or stored was written"
    needs = frozenset({"lends", "tables", "writes", "transfers", "whole_prefix"})
    kinds = frozenset({EventKind.HOLD, EventKind.WRITTEN, EventKind.TRANSFER_BEGIN})
    takes_lists = True  # what was written is asked for by the shadow alone

    def __init__(self):
        # Request that has not committed anything -> what it was given.
        self._prefix: dict[int, np.ndarray] = {}

    def check(self, event: Event, shadow: Shadow, report: Report) -> None:
        rid = event.cause.rid
        if event.kind is _TRANSFER_BEGIN:
            if event.pool in shadow.edge_into:
                _check_peers(event, shadow, report)
            elif event.method == "offload":
                pages = shadow.pools[event.pool].inside(event.pages)
                self._judge(event, pages, f"offload {event.token} of request {rid} stores", shadow, report)
        elif event.kind is _WRITTEN:
            prefix = self._prefix.pop(rid, None)
            if prefix is not None:
                self._judge(event, prefix, f"request {rid} has read", shadow, report)
        elif not len(event.pages):
            self._prefix.pop(rid, None)
        elif event.cause.kind == "admit":
            pool, transfers = shadow.pools[event.pool], shadow.transfers
            pages = pool.inside(event.pages)
            unwritten = pages[~transfers.is_written(event.pool, pages)]
            if len(unwritten):
                old = unwritten[pool.lent_by[unwritten] < shadow.causes.first_of(event.cause.operation)]
                given_up = old[transfers.load_ended(event.pool, old)]
                if self._judge(event, given_up, f"request {rid} was given", shadow, report):
                    return
            self._prefix[rid] = pages

    def _judge(self, event: Event, pages: np.ndarray, who: str, shadow: Shadow, report: Report) -> bool:
        """Whether any of the pages, which the pool has, was never written; the first is reported."""
        transfers, pool = shadow.transfers, event.pool
        written = transfers.is_written(pool, pages)
        if all_of(written):
            return False
        unwritten = pages[~written]
        page = int(unwritten[0])
        index = transfers.end_of_load(pool, page)
        cause = shadow.causes[index] if index else None

        def message() -> str:
            why = "nothing has written it"
            if cause is not None:
                why = f"its load ended without it in operation {cause.operation} ({blame(cause)})"
            elif transfers.busy_among(pool, [page]):
                why = "its load has not ended"
            return f"{who} page {page}, but {why}{such_pages(len(unwritten))}"

        report(Violation("I17", pool, page, len(unwritten), message, cause))
        return True


def _check_peers(event: Event, shadow: Shadow, report: Report) -> None:
    """The part of a transfer that goes through an edge is there."""
    edge = shadow.edge_into[event.pool]
    pages = edge.source.inside(event.pages[-1:] if event.method == "load" else event.pages)
    without = pages[~edge.is_page(edge.peer[pages])]
    if len(without):
        page = int(without[0])
        text = f"{event.method} {event.token} moves the {event.pool} part of page {page}, which has none"
        report(
            Violation(
                "I17",
                edge.shape.source,
                page,
                len(without),
                lambda: f"{text}{such_pages(len(without))} ({blame(event.cause)})",
            )
        )
