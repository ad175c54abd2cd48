"""I9 for memory that a request's row owns: what a forward pass reads there was written by this request, since it has
the row, and nothing has taken its place.

Such memory is not content addressed: who takes a row finds the last owner's window in it, and a prefix hit writes
nothing there (sglang#30339, ATOM#1423). Blame for a page that was never written goes to the operation that gave the
row, for one that was overwritten to the pass itself. Level 1. Some 3 us a request and forward pass, where a window is a
few pages.
"""

from __future__ import annotations

import numpy as np

from stress.check.event import Event, EventKind, with_arrays
from stress.check.history import blame
from stress.check.pool_shadow import PoolShadow
from stress.check.rules.rule import Report, Rule, Violation, such_pages
from stress.check.state import Shadow

_NEVER = -1


class RowMemory(Rule):
    id = "I9"
    title = "what a forward pass reads in its row was written there by this request, since it has the row"
    needs = frozenset({"lends", "returns", "row_memory"})
    kinds = frozenset({EventKind.LEND, EventKind.ROW_WRITTEN, EventKind.ROW_READ})
    takes_lists = True

    def __init__(self):
        # By pool and page of the row's memory: which page of its owner it holds.
        self._holds: dict[str, np.ndarray] = {}
        self._reported: set[tuple[int, int]] = set()

    def check(self, event: Event, shadow: Shadow, report: Report) -> None:
        pool = shadow.pools[event.pool]
        holds = self._holds.get(event.pool)
        if event.kind is EventKind.LEND:
            if holds is not None:
                holds[pool.inside(np.asarray(event.pages, dtype=np.int64))] = _NEVER
            return
        if holds is None:
            holds = self._holds[event.pool] = np.full(len(pool.owner), _NEVER, dtype=np.int64)
        if type(event.pages) is list and self._is_in_order(event, pool, holds):
            return
        event = with_arrays(event)
        pages = event.pages
        mine = pool.on_loan[pages] & (pool.owner[pages] == event.cause.rid)
        if event.kind is EventKind.ROW_WRITTEN:
            holds[pages[mine]] = event.peers[mine]
            return
        bad = ~mine | (holds[pages] != event.peers)
        if np.count_nonzero(bad):
            self._judge(event, pool, np.flatnonzero(bad), mine, holds, shadow, report)

    def _is_in_order(self, event: Event, pool: PoolShadow, holds: np.ndarray) -> bool:
        """The pages are the request's, and what is read there is right; what is written is noted. By plain integers:
        a numpy call on a few pages costs more than the pages."""
        rid, on_loan, owner = event.cause.rid, pool.on_loan, pool.owner
        for page in event.pages:
            if owner.item(page) != rid or not on_loan.item(page):
                return False
        if event.kind is EventKind.ROW_WRITTEN:
            for page, wanted in zip(event.pages, event.peers, strict=True):
                holds[page] = wanted
            return True
        return all(holds.item(page) == wanted for page, wanted in zip(event.pages, event.peers, strict=True))

    def _judge(self, event: Event, pool: PoolShadow, at, mine, holds, shadow: Shadow, report: Report) -> None:
        rid = event.cause.rid
        new = [i for i in at.tolist() if (rid, int(event.peers[i])) not in self._reported]
        if not new:
            return
        self._reported.update((rid, int(event.peers[i])) for i in new)
        page, wanted = int(event.pages[new[0]]), int(event.peers[new[0]])
        found, cause = int(holds[page]), None
        if not mine[new[0]]:
            what = "which is not on loan to it"
        elif found == _NEVER:
            cause = shadow.causes[pool.lent_by[page]]
            what = f"which it has not written since it has the row ({blame(cause)})"
        else:
            what = f"which holds its page {found}"

        def message() -> str:
            where = f"page {wanted} of its window in {event.pool} page {page}"
            return f"request {rid} reads {where}, {what}{such_pages(len(new))}"

        report(Violation("I9", event.pool, page, len(new), message, cause, event.at_us))
