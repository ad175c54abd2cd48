"""I21: two different prefixes never have one key: key -> full identity is injective.

At each insert and store the keys by which the target finds a request's published pages stand beside what the pages
really are, the workload's own identities of namespace and whole prefix. A key without the namespace, or a hash that was
cut, meets the first prefix under a key again with another (sglang#24638, vllm#44701, LMCache#4783).
Level 1. One look into a hash map a page that is published, some 15 us a hundred pages.
"""

from __future__ import annotations

import numpy as np

from stress.check.event import Event, EventKind
from stress.check.history import blame
from stress.check.key_map import KeyMap
from stress.check.rules.rule import Report, Rule, Violation
from stress.check.state import Shadow


class Keys(Rule):
    id = "I21"
    title = "a key names one prefix in one namespace"
    needs = frozenset({"keys"})
    kinds = frozenset({EventKind.KEYS})

    def __init__(self):
        self._identity: dict[str, KeyMap] = {}  # by pool

    def check(self, event: Event, shadow: Shadow, report: Report) -> None:
        known = self._identity.get(event.pool)
        if known is None:
            known = self._identity[event.pool] = KeyMap()
        wrong = known.add(event.pages, event.peers) != event.peers
        count = int(np.count_nonzero(wrong))
        if count:
            report(_violation(event, int(np.argmax(wrong)), count))


def _violation(event: Event, at: int, count: int) -> Violation:
    def message() -> str:
        more = f" ({count} such keys)" if count > 1 else ""
        return (
            f"key {int(event.pages[at])}, by which {event.method} ({blame(event.cause)}) finds what request "
            f"{event.cause.rid} published, already stands for another prefix or namespace{more}"
        )

    return Violation("I21", event.pool, -1, count, message)
