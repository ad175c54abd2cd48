"""I16: a slot holds what its reader takes it for.

Whoever stands for the model stamps each slot that a forward pass or a load writes, and compares before a prefix is
read, stored or published, and in sweeps; what differs comes as CONTENT. The only rule that sees one page with two
owners whose counts balance (sglang#27779, sglang#30339, sglang#31427, ROCm/ATOM#1423), or another key's content.
Level 2 by default (check.content), page-sampled there. Costs nothing itself, since on a host only what differs is told;
stamping and comparing does, see docs/checks.md.
"""

from __future__ import annotations

from stress.check.event import Event, EventKind
from stress.check.history import blame
from stress.check.rules.rule import Report, Rule, Violation, such_pages
from stress.check.slot_label import NOTHING, describe, position_of, request_of
from stress.check.state import Shadow


class Content(Rule):
    id = "I16"
    title = "a slot holds what its reader takes it for"
    needs = frozenset({"content"})
    kinds = frozenset({EventKind.CONTENT})

    def check(self, event: Event, shadow: Shadow, report: Report) -> None:
        count, slot = event.pages.tolist()
        if not count:
            return
        found, expected, forgotten = event.peers.tolist()
        page = slot // shadow.pools[event.pool].shape.page_size

        def message() -> str:
            held = describe(found)
            if forgotten and found != NOTHING:
                held += ", left there before the page was lent anew"
            elif found != NOTHING and position_of(found) == position_of(expected):
                held += ", under another prefix or namespace"
            what = _reader(event.method, expected, held)
            return f"page {page} {what} ({blame(event.cause)}){such_pages(count)}"

        report(Violation("I16", event.pool, page, count, message))


def _reader(method: str, expected: int, held: str) -> str:
    position, rid = position_of(expected), request_of(expected)
    if method == "load":
        return f"gets {held} from the store, request {rid} asked for position {position}"
    if method == "store":
        return f"holds {held}, the store takes it for position {position} of request {rid}"
    if method == "sweep":
        return f"holds {held}, the cache keeps it as position {position} of request {rid}"
    verb = "publishes" if method == "publish" else "reads"
    return f"holds {held}, request {rid} {verb} it as position {position}"
