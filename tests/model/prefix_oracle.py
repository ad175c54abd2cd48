"""What a prefix cache must hold, by brute force: the oracle of test_prefix_cache_model.

One record a cached prefix (a tuple of tokens, one token a page) and no tree: a node is the stretch of prefixes
between two `borders`, and every answer is a scan over all prefixes.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

WINDOW_PAGES = 2
Prefix = tuple[int, ...]


def prefixes(tokens: Prefix) -> list[Prefix]:
    return [tokens[: i + 1] for i in range(len(tokens))]


@dataclass
class Held:
    """What the model says a receipt covers."""

    tokens: Prefix
    swa: list[Prefix]


@dataclass
class BruteForce:
    gated: bool
    page: dict[Prefix, int] = field(default_factory=dict)
    live: dict[Prefix, bool] = field(default_factory=dict)
    used: dict[Prefix, tuple[int, int]] = field(default_factory=dict)  # (time, -depth): deeper means older
    borders: dict[Prefix, None] = field(default_factory=dict)
    full_locks: Counter = field(default_factory=Counter)
    swa_locks: Counter = field(default_factory=Counter)
    time: int = 0

    def touch(self, tokens: Prefix) -> None:
        self.time += 1
        self.used.update({p: (self.time, -len(p)) for p in prefixes(tokens)})

    def known(self, tokens: Prefix) -> int:
        return max((len(p) for p in prefixes(tokens) if p in self.page), default=0)

    def match(self, tokens: Prefix) -> Prefix:
        hit = self.known(tokens)
        while self.gated and not all(self.live[p] for p in prefixes(tokens[:hit])[-WINDOW_PAGES:]):
            hit -= 1
        if hit:
            self.borders[tokens[:hit]] = None
            self.touch(tokens[:hit])
        return tokens[:hit]

    def swa_from(self, hit: Prefix) -> int:
        return max((len(p) for p in prefixes(hit) if not self.live[p]), default=0)

    def insert(self, tokens: Prefix, pages: list[int], flags: list[bool], protected: int):
        known = self.known(tokens)
        recovered, duplicates = [False] * len(tokens), [False] * len(tokens)
        for i, p in enumerate(prefixes(tokens)):
            if i < known:
                recovered[i] = flags[i] and not self.live[p]
                duplicates[i] = i >= protected and not recovered[i] and self.page[p] != pages[i]
                self.live[p] = self.live[p] or recovered[i]
            else:
                self.page[p], self.live[p] = pages[i], flags[i]
            if i + 1 in (known, len(tokens)):
                self.borders[p] = None
                continue
            follows = tokens[: i + 2]
            here, there = (
                (recovered[i], flags[i + 1] and not self.live[follows]) if i < known else flags[i : i + 2]
            )
            if here != there:
                self.borders[p] = None
        self.touch(tokens)
        return recovered, duplicates

    def node(self, end: Prefix) -> list[Prefix]:
        """The stretch that ends at a border, deepest first."""
        stretch = [end]
        while len(stretch[-1]) > 1 and stretch[-1][:-1] not in self.borders:
            stretch.append(stretch[-1][:-1])
        return stretch

    def lock(self, tokens: Prefix) -> Held:
        held, end = Held(tokens, []), tokens
        while end and self.live[end] and len(held.swa) < WINDOW_PAGES:
            held.swa += self.node(end)
            end = held.swa[-1][:-1]
        self.full_locks.update(prefixes(tokens))
        self.swa_locks.update(held.swa)
        return held

    def unlock_swa(self, held: Held) -> None:
        self.swa_locks.subtract(held.swa)
        held.swa = []

    def unlock(self, held: Held) -> None:
        self.unlock_swa(held)
        self.full_locks.subtract(prefixes(held.tokens))

    def evict(self, component: str, need: int) -> list[tuple[list[int], bool]]:
        victims = []
        while need > 0:
            if component == "full":
                inner = {p[:-1] for p in self.page}
                ends = [p for p in self.page if p not in inner and not self.full_locks[p]]
            else:
                ends = [p for p in self.page if p in self.borders and self.live[p] and not self.swa_locks[p]]
            if not ends:
                break
            node = self.node(min(ends, key=self.used.__getitem__))
            victims.append(([self.page[p] for p in reversed(node)], self.live[node[0]]))
            need -= len(node)
            for p in node:
                self.live[p] = False
                if component == "full":
                    del self.page[p], self.live[p], self.used[p]
                    self.borders.pop(p, None)
        return victims
