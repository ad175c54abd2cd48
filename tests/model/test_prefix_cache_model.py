"""The prefix cache against a brute-force model, with mutants that the same machine must catch.

The model (prefix_oracle.py) predicts hits, page ids, page ranges, lock counts, counters, the order of SWA recency
and the exact victims of an eviction.
"""

from __future__ import annotations

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
from prefix_oracle import WINDOW_PAGES, BruteForce, Prefix, prefixes

from allocator import prefix_audit
from allocator.prefix_cache import PrefixCache
from allocator.prefix_node import LockError

TOKENS = st.lists(st.integers(0, 1), min_size=1, max_size=7).map(tuple)
FLAGS = st.integers(0, 2**12 - 1)  # bit i: the caller has SWA for page i


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
        assert found.known == self.model.known(tokens)
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
        victims = [(v.pages.tolist(), v.swa_live, v.component) for v in evict(need)]
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
        swa_locked = sum(1 for p in model.page if model.swa_locks[p] and model.live[p])
        live = sum(model.live.values())
        assert self.cache.counts() == (len(seen) - locked, locked, live - swa_locked, swa_locked)
        recency = self.cache.swa_recency
        nodes = [node := recency.sentinel.older] if model.recency else []
        while nodes and (node := node.older) is not recency.sentinel:
            nodes.append(node)
        assert [self.tokens_of(n.keys)[: n.end] for n in nodes] == model.recency
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


class RenewsTheWholePath(PrefixCache):
    """A use renews the SWA recency of the whole prefix, so that what no window touches is never the oldest."""

    def _renew_window(self, node) -> None:
        path = []
        while node is not self.root:
            path.append(node)
            node = node.parent
        for node in reversed(path):
            if node.swa_live:
                self.swa_recency.renew(node)


class SplitMakesTheFrontNewest(PrefixCache):
    """A split puts the front half at the head of SWA recency, where upstream puts it behind the deep half."""

    def _split(self, node, at):
        front = super()._split(node, at)
        if front.swa_live:
            self.swa_recency.renew(front)
        return front


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
    [
        (UnlockWalksLiveNodes, (LockError, AssertionError)),
        (RecoveryReplacesPages, AssertionError),
        (RenewsTheWholePath, AssertionError),
        (SplitMakesTheFrontNewest, AssertionError),
    ],
)
def test_the_model_catches_a_mutant(mutant: type[PrefixCache], symptom) -> None:
    machine = type("Mutant", (PrefixMachine,), {"cache_class": mutant})
    with pytest.raises(symptom):
        explore(machine, examples=1200, phases=(Phase.generate,))  # it stops at the first failure
