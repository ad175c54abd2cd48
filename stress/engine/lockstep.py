"""Two engines under the same operations, compared after each one: what was answered, and each pool's counts.

The leader answers the scheduler, so the operations are the leader's; the follower executes them too. Compared are hit
lengths, refusals and, by pool, free, evictable and protected pages; page ids are not, for engines number pages as they
like. The first difference is kept (`parted`), and from then on the follower is left alone: what comes later follows
from it. Two engines that agree on every operation of a workload are one allocator in two implementations.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from stress.engine.contract import Engine, RequestSpec

VERBS = (
    "admit",
    "extend",
    "reserve",
    "commit",
    "results_begin",
    "results_end",
    "checkpoint",
    "evict_windows",
    "finish",
    "abort",
    "retract",
    "evict",
    "poll",
    "drain",
)
READ = (
    "room",
    "next_window_eviction",
    "pending_us",
    "loads_due_us",
    "table",
    "running",
    "cached_pages",
    "counts",
    "leftover",
    "marks",
    "allocators",
    "linker",
    "join",
    "landed",
    "standing",
    "exchange",
)
# A poll's number of completions and a window's trigger are the engine's own affair; their effects are compared.
_UNANSWERED = frozenset({"poll"})


class Parting(NamedTuple):
    """The first verb after which the engines differ. `number` counts verbs from 1."""

    number: int
    verb: str
    arguments: tuple
    lead: dict[str, Any]
    follow: dict[str, Any]

    def describe(self) -> str:
        """One line: the verb, and each term that differs."""
        terms = [f"{name} {self.lead[name]} | {self.follow[name]}" for name in self.lead]
        return f"operation {self.number}, {self.verb}{self.arguments}: " + "; ".join(terms)


class LockstepEngine:
    def __init__(self, lead: Engine, follow: Engine) -> None:
        self.lead, self.follow = lead, follow
        self.parted: Parting | None = None
        self.number = 0
        self.page_size, self.pools, self.edges = lead.page_size, lead.pools, lead.edges
        self.observes, self.marks_exempt = lead.observes, lead.marks_exempt
        for verb in VERBS:
            setattr(self, verb, self._both(verb))
        for name in READ:
            setattr(self, name, getattr(lead, name))

    @property
    def step(self) -> str:
        return self.lead.step

    @property
    def now_us(self) -> int:
        return self.lead.now_us

    @now_us.setter
    def now_us(self, now_us: int) -> None:
        self.lead.now_us = self.follow.now_us = now_us

    def open(self, spec: RequestSpec) -> None:
        self.lead.open(spec)
        self.follow.open(spec)

    def close(self, rid: int) -> None:
        self.lead.close(rid)
        if self.parted is None:
            self.follow.close(rid)

    def failed_loads(self) -> list[tuple[int, int]]:
        """The leader's; the follower forgets its own, for it is told what becomes of them."""
        if self.parted is None:
            self.follow.failed_loads()
        return self.lead.failed_loads()

    def synchronize(self) -> None:
        self.lead.synchronize()

    def learn(self, news: list[bytes]) -> None:
        self.lead.learn(news)

    def _both(self, verb: str):
        leads, follows = getattr(self.lead, verb), getattr(self.follow, verb)

        def run(*arguments):
            self.number += 1
            answer = leads(*arguments)
            if self.parted is None:
                self._compare(verb, arguments, answer, follows(*arguments))
            return answer

        return run

    def _compare(self, verb: str, arguments: tuple, answer: Any, other: Any) -> None:
        lead, follow = self.lead.counts(), self.follow.counts()
        terms = [(name, lead[name], follow[name]) for name in lead]
        if verb not in _UNANSWERED:
            terms.append(("answer", answer, other))
        differing = [term for term in terms if term[1] != term[2]]
        if differing:
            self.parted = Parting(
                self.number,
                verb,
                arguments,
                {name: ours for name, ours, _ in differing},
                {name: theirs for name, _, theirs in differing},
            )
