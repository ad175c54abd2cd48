"""What a prefix cache must hold, by brute force: the oracle of test_prefix_cache_model.

One record a cached prefix (a tuple of tokens, one token a page) and no tree: a node is the stretch of prefixes
between two `borders`, named by its deepest prefix, and every answer is a scan over all prefixes.
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
    borders: dict[Prefix, None] = field(default_factory=dict)
    used: dict[Prefix, int] = field(default_factory=dict)  # of a node: when FULL last saw it
    recency: list[Prefix] = field(default_factory=list)  # nodes that are SWA live, newest first
    full_locks: Counter = field(default_factory=Counter)
    swa_locks: Counter = field(default_factory=Counter)
    time: int = 0

    # Nodes

    def node(self, end: Prefix) -> list[Prefix]:
        """The stretch that ends at a border, deepest first."""
        stretch = [end]
        while len(stretch[-1]) > 1 and stretch[-1][:-1] not in self.borders:
            stretch.append(stretch[-1][:-1])
        return stretch

    def path(self, tokens: Prefix) -> list[Prefix]:
        """The nodes that hold the prefixes of `tokens` that are cached, root side first."""
        hit = [p for p in prefixes(tokens) if p in self.page]
        return [end for end in sorted(self.borders, key=len) if set(self.node(end)) & set(hit)]

    def split(self, at: Prefix) -> None:
        """The node around `at` becomes two; the front half stands right behind the deep one in SWA recency."""
        if at in self.borders:
            return
        (deep,) = [end for end in self.borders if at in self.node(end)]
        self.borders[at] = None
        self.touch(at, deep)
        if self.live[deep]:
            self.recency.insert(self.recency.index(deep) + 1, at)

    def touch(self, *ends: Prefix) -> None:
        for end in ends:
            self.time += 1
            self.used[end] = self.time

    def renew_window(self, end: Prefix) -> None:
        """The nodes that a window and a page behind `end` touch become the newest, `end` the newest of all."""
        place = 0
        for node in reversed(self.path(end)):
            if len(end) - len(node) <= WINDOW_PAGES and self.live[node]:
                self.recency.remove(node)
                self.recency.insert(place, node)
                place += 1

    # Verbs

    def known(self, tokens: Prefix) -> int:
        return max((len(p) for p in prefixes(tokens) if p in self.page), default=0)

    def match(self, tokens: Prefix) -> Prefix:
        hit = self.known(tokens)
        if hit:
            self.split(tokens[:hit])
        while hit and not self.may_end(tokens[:hit]):
            hit -= 1
        if hit:
            self.touch(*self.path(tokens[:hit]))
            self.renew_window(tokens[:hit])
        return tokens[:hit]

    def may_end(self, hit: Prefix) -> bool:
        window = [self.live[p] for p in prefixes(hit)[-WINDOW_PAGES:]]
        return all(window) or (not self.gated and not window[-1])

    def swa_from(self, hit: Prefix) -> int:
        return max((len(p) for p in prefixes(hit) if not self.live[p]), default=0)

    def insert(self, tokens: Prefix, pages: list[int], flags: list[bool], protected: int):
        known = self.known(tokens)
        recovered, duplicates = [False] * len(tokens), [False] * len(tokens)
        self.touch(*self.path(tokens))
        if known:
            self.split(tokens[:known])
        for end in self.path(tokens[:known]):
            self.recover(end, flags, recovered)
        for i, p in enumerate(prefixes(tokens[:known])):
            duplicates[i] = i >= protected and not recovered[i] and self.page[p] != pages[i]
        for i, p in enumerate(prefixes(tokens)[known:], known):
            self.page[p], self.live[p] = pages[i], flags[i]
            if i + 1 == len(tokens) or flags[i] != flags[i + 1] or self.window_starts(flags, i + 1):
                self.borders[p] = None
                self.touch(p)
                if flags[i]:
                    self.recency.insert(0, p)
        self.renew_window(tokens)
        return recovered, duplicates

    @staticmethod
    def window_starts(flags: list[bool], at: int) -> bool:
        """The last window of a new live run is a node by itself."""
        last = at + WINDOW_PAGES
        return all(flags[at - 1 : last]) and (last == len(flags) or (last < len(flags) and not flags[last]))

    def recover(self, end: Prefix, flags: list[bool], recovered: list[bool]) -> None:
        node = prefixes(end)[-len(self.node(end)) :]
        if self.live[end] or not any(flags[len(p) - 1] for p in node):
            return
        for p in node:
            if p != end and flags[len(p) - 1] != flags[len(p)]:
                self.split(p)
        for part in self.path(end)[-len(node) :]:
            if part in node and flags[len(part) - 1]:
                self.recency.insert(0, part)
                for p in self.node(part):
                    self.live[p] = recovered[len(p) - 1] = True

    def lock(self, tokens: Prefix) -> Held:
        held, end = Held(tokens, []), tokens
        while end and len(held.swa) < WINDOW_PAGES:
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

    def evict(self, component: str, need: int) -> list[tuple[list[int], bool, str]]:
        victims = []
        while need > 0:
            inner = {p[:-1] for p in self.page}
            leaves = [p for p in self.page if p not in inner and not self.full_locks[p]]
            if component == "full":
                order = sorted(leaves, key=self.used.__getitem__)
            else:
                order = [end for end in reversed(self.recency) if not self.swa_locks[end]]
            if not order:
                break
            end, node = order[0], self.node(order[0])
            goes = "full" if end in leaves else "swa"
            victims.append(([self.page[p] for p in reversed(node)], self.live[end], goes))
            need -= len(node)
            if self.live[end]:
                self.recency.remove(end)
            for p in node:
                self.live[p] = False
                if goes == "full":
                    del self.page[p], self.live[p]
            if goes == "full":
                del self.borders[end], self.used[end]
        return victims
