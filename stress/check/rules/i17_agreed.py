"""I17 in a group: what is loaded can be restored by every member, up to the agreed length and with its window.

Each member has told which pages its store holds, and which with their window part. A length that is the longest of one
member, or the shortest of the longest, need not be among what all can restore: with {4, 8} and {4, 12} pages only 4 is
(LMCache#1379). Asked when a load begins; level 1, a look-up a page and member.
"""

from __future__ import annotations

import numpy as np

from stress.check.event import Event, EventKind
from stress.check.rules.rule import Report, Rule, Violation, such_pages
from stress.check.state import Shadow


class Agreed(Rule):
    id = "I17"
    title = "what is loaded can be restored by every rank of the group"
    needs = frozenset({"transfers", "lookups"})
    kinds = frozenset({EventKind.RESTORABLE, EventKind.TRANSFER_BEGIN})

    def __init__(self):
        self._held: dict[int, set[int]] = {}  # member -> keys that it has told
        self._windows: dict[int, set[int]] = {}  # the same, with their window part
        self._loads: dict[int, np.ndarray] = {}  # ticket -> keys of the load that has just begun
        self._over = False  # the group agrees on nothing any more

    def check(self, event: Event, shadow: Shadow, report: Report) -> None:
        if event.kind is EventKind.RESTORABLE and event.token < 0:
            self._over = True
        elif self._over:
            return
        elif event.kind is EventKind.RESTORABLE:
            keys = event.pages.tolist()
            self._held.setdefault(event.token, set()).update(keys)
            window = self._windows.setdefault(event.token, set())
            window.update(key for key, stored in zip(keys, event.peers.tolist(), strict=True) if stored)
        elif event.method != "load":
            return
        elif event.pool not in shadow.edge_into:
            self._loads = {event.token: event.peers}
            self._judge(event, event.pages, event.peers, self._held, "", report)
        elif event.token in self._loads:
            edge = shadow.edge_into[event.pool]
            has_peer = edge.is_page(edge.peer[event.pages])
            keys = self._loads[event.token][has_peer]
            self._judge(
                event, event.pages[has_peer], keys, self._windows, f" with its {event.pool} part", report
            )

    def _judge(self, event, pages, keys, told: dict[int, set[int]], part: str, report: Report) -> None:
        for member, held in sorted(told.items()):
            lacking = [
                page for page, key in zip(pages.tolist(), keys.tolist(), strict=True) if key not in held
            ]
            if lacking:
                report(_not_restorable(event, lacking, member, len(keys), part))


def _not_restorable(event: Event, pages: list[int], member: int, count: int, part: str) -> Violation:
    def message() -> str:
        return (
            f"request {event.cause.rid} loads {count} pages{part}, and member {member} of its group has not told that "
            f"its store holds what goes to page {pages[0]}{such_pages(len(pages))}"
        )

    return Violation("I17", event.pool, pages[0], len(pages), message)
