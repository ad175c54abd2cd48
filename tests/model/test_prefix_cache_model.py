"""The prefix cache against a brute-force model, with two mutants that the same machine must catch.

The model keeps one record a cached prefix (a tuple of tokens, one token a page) and knows no tree: a node is
the stretch of prefixes between two `borders`, and every answer is a scan over all prefixes. It predicts hits,
page ids, page ranges, lock counts, counters and the exact victims of an eviction.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from allocator import prefix_audit
from allocator.prefix_cache import PrefixCache
from allocator.prefix_node import LockError

WINDOW_PAGES = 2
Prefix = tuple[int, ...]
TOKENS = st.lists(st.integers(0, 1), min_size=1, max_size=7).map(tuple)
FLAGS = st.integers(0, 2**12 - 1)  # bit i: the caller has SWA for page i


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


class PrefixMachine(RuleBasedStateMachine):
    cache_class: type[PrefixCache] = PrefixCache
    gated = False

    def __init__(self) -> None:
        super().__init__()
        self.cache = self.cache_class(WINDOW_PAGES, self.gated)
        self.model = BruteForce(self.gated)
        self.held: list[tuple] = []
        self.key_ids: dict[Prefix, int] = {}
        self.fresh_page = 0

    def keys(self, tokens: Prefix) -> np.ndarray:
        ids = [self.key_ids.setdefault(p, 1000 + len(self.key_ids)) for p in prefixes(tokens)]
        return np.array(ids, dtype=np.int64)

    def tokens_of(self, keys: np.ndarray) -> Prefix:
        return next(p for p, key in self.key_ids.items() if key == keys[-1])

    def insert(self, tokens: Prefix, bits: int, protected: int) -> None:
        pages = [self.model.page[p] for p in prefixes(tokens[:protected])]
        pages += range(self.fresh_page + 1, self.fresh_page + 1 + len(tokens) - protected)
        self.fresh_page += len(tokens)
        flags = [bool(bits >> i & 1) for i in range(len(tokens))]
        known = self.model.known(tokens)
        done = self.cache.insert(self.keys(tokens), np.array(pages), np.array(flags), protected)
        recovered, duplicates = self.model.insert(tokens, pages, flags, protected)
        assert done.pages.tolist() == [self.model.page[p] for p in prefixes(tokens)]
        for ranges, expected in ((done.recovered, recovered), (done.duplicates, duplicates)):
            assert [any(low <= i < high for low, high in ranges) for i in range(len(tokens))] == expected
        assert [i for low, high in done.adopted for i in range(low, high)] == list(range(known, len(tokens)))
        assert done.node.end == len(tokens)

    @rule(tokens=TOKENS, bits=FLAGS)
    def insert_unlocked(self, tokens: Prefix, bits: int) -> None:
        self.insert(tokens, bits, 0)

    @precondition(lambda self: self.held)
    @rule(data=st.data(), suffix=st.lists(st.integers(0, 1), max_size=4).map(tuple), bits=FLAGS)
    def insert_behind_lock(self, data, suffix: Prefix, bits: int) -> None:
        tokens = data.draw(st.sampled_from(self.held))[1].tokens
        if tokens + suffix:
            self.insert(tokens + suffix, bits, len(tokens))

    @rule(tokens=TOKENS, lock=st.booleans(), holder=st.sampled_from("ab"))
    def match(self, tokens: Prefix, lock: bool, holder: str) -> None:
        hit = self.model.match(tokens)
        found = self.cache.match(self.keys(tokens))
        assert found.pages.tolist() == [self.model.page[p] for p in prefixes(hit)]
        assert (found.node.end, found.swa_from) == (len(hit), self.model.swa_from(hit))
        if lock:
            self.held.append((self.cache.lock(found.node, holder), self.model.lock(hit)))

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def unlock(self, data) -> None:
        receipt, held = self.held.pop(data.draw(st.integers(0, len(self.held) - 1)))
        self.cache.unlock(receipt)
        self.model.unlock(held)
        with pytest.raises(LockError, match="unlock it once"):
            self.cache.unlock(receipt)

    @precondition(lambda self: any(receipt.swa_held for receipt, _ in self.held))
    @rule(data=st.data())
    def release_swa_lock(self, data) -> None:
        receipt, held = data.draw(st.sampled_from([pair for pair in self.held if pair[0].swa_held]))
        self.cache.release_swa_lock(receipt)
        self.model.unlock_swa(held)

    @rule(component=st.sampled_from(["full", "swa"]), need=st.integers(1, 6))
    def evict(self, component: str, need: int) -> None:
        evict = self.cache.evict_full if component == "full" else self.cache.evict_swa
        victims = []
        for victim in evict(need):
            assert victim.component == component
            victims.append((victim.pages.tolist(), victim.swa_live))
        assert victims == self.model.evict(component, need)

    @invariant()
    def tree_holds_together(self) -> None:
        assert self.cache.check_integrity() == []

    @invariant()
    def tree_equals_model(self) -> None:
        seen = {}
        for node in prefix_audit.nodes_below(self.cache.root):
            tokens = self.tokens_of(node.keys)
            for i, p in enumerate(prefixes(tokens)[node.start :]):
                seen[p] = (int(node.pages[i]), node.swa_live, node.full_lock, node.swa_lock)
        model = self.model
        assert seen == {
            p: (model.page[p], model.live[p], model.full_locks[p], model.swa_locks[p]) for p in model.page
        }
        locked = sum(1 for p in model.page if model.full_locks[p])
        swa_locked = sum(1 for p in model.page if model.swa_locks[p])
        live = sum(model.live.values())
        assert self.cache.counts() == (len(seen) - locked, locked, live - swa_locked, swa_locked)
        holders = {h: list(receipts.values()) for h, receipts in self.cache.holders.items()}
        assert holders == {h: mine for h in "ab" if (mine := [r for r, _ in self.held if r.holder == h])}


class GatedPrefixMachine(PrefixMachine):
    gated = True


class UnlockWalksLiveNodes(PrefixCache):
    """F10 (sgl-project/sglang#24972): the unlock looks for the window again, not at the receipt."""

    def _unlock_swa(self, receipt) -> None:
        node = receipt.node
        while node.swa_live and receipt.depth - node.end < self.window_pages:
            self._drop_swa_lock(node, receipt)
            node = node.parent


class RecoveryReplacesPages(PrefixCache):
    """F09 (sgl-project/sglang#29352): a revived tombstone takes over the caller's FULL pages."""

    def _recover(self, node, caller_pages) -> None:
        super()._recover(node, caller_pages)
        node.pages = caller_pages.copy()


def explore(machine: type[PrefixMachine], examples: int, phases=tuple(Phase)) -> None:
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=25,
            deadline=None,
            derandomize=True,
            database=None,
            phases=phases,
            report_multiple_bugs=False,
            suppress_health_check=list(HealthCheck),
        ),
    )


@pytest.mark.parametrize("machine", [PrefixMachine, GatedPrefixMachine])
def test_cache_equals_the_model(machine: type[PrefixMachine]) -> None:
    explore(machine, examples=250)


@pytest.mark.parametrize(
    ("mutant", "symptom"),
    [(UnlockWalksLiveNodes, (LockError, AssertionError)), (RecoveryReplacesPages, AssertionError)],
)
def test_the_model_catches_a_mutant(mutant: type[PrefixCache], symptom) -> None:
    machine = type("Mutant", (PrefixMachine,), {"cache_class": mutant})
    with pytest.raises(symptom):
        explore(machine, examples=120, phases=(Phase.generate,))
