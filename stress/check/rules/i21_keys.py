"""I21: two different prefixes never have one key: key -> full identity is injective.

At each insert and store the keys by which the target finds a request's published pages stand beside what the pages
really are, the workload's own identities of namespace and whole prefix. A key without the namespace, or a hash that was
cut, meets the first prefix under a key again with another (sglang#24638, vllm#44701, LMCache#4783).
Level 1. While keys are the identities themselves they are only put aside, some 3 us an insert, and go into a hash map
by the ten thousand; from the first one that is not, each is looked up as it comes, some 15 us a hundred pages.
"""

from __future__ import annotations

import numpy as np

from stress.check.event import Event, EventKind
from stress.check.history import blame
from stress.check.key_map import KeyMap
from stress.check.rules.rule import Report, Rule, Violation
from stress.check.state import Shadow

_ASIDE_MAX = 1 << 16


class Keys(Rule):
    id = "I21"
    title = "a key names one prefix in one namespace"
    needs = frozenset({"keys"})
    kinds = frozenset({EventKind.KEYS})

    def __init__(self):
        self._identity: dict[str, KeyMap] = {}  # by pool
        # By pool: keys that are their own identities, not in the map yet.
        self._aside: dict[str, list[np.ndarray]] = {}
        self._aside_keys = 0
        self._plain = True  # so far every key is its own identity

    def check(self, event: Event, shadow: Shadow, report: Report) -> None:
        if self._plain and (event.pages == event.peers).all():
            self._aside.setdefault(event.pool, []).append(event.pages)
            self._aside_keys += len(event.pages)
            if self._aside_keys > _ASIDE_MAX:
                self._take_aside()
            return
        self._plain = False
        self._take_aside()
        known = self._identity.setdefault(event.pool, KeyMap())
        wrong = known.add(event.pages, event.peers) != event.peers
        count = int(np.count_nonzero(wrong))
        if count:
            report(_violation(event, int(np.argmax(wrong)), count))

    def _take_aside(self) -> None:
        """What was put aside goes into the maps."""
        aside, self._aside, self._aside_keys = self._aside, {}, 0
        for pool, keys in aside.items():
            distinct = np.unique(np.concatenate(keys))
            self._identity.setdefault(pool, KeyMap()).add(distinct, distinct)


def _violation(event: Event, at: int, count: int) -> Violation:
    def message() -> str:
        more = f" ({count} such keys)" if count > 1 else ""
        return (
            f"key {int(event.pages[at])}, by which {event.method} ({blame(event.cause)}) finds what request "
            f"{event.cause.rid} published, already stands for another prefix or namespace{more}"
        )

    return Violation("I21", event.pool, -1, count, message)
