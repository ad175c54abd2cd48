"""Two linkers over replicas of one shared store, against a model of sets and lists.

Keys are chained: page d of stream s extends page d-1 of it, and streams share their first pages. What must
hold: every transfer ends once, at its time and in order; a lookup is the longest stored prefix; no key is
visible before its store completed here, or before the exchange that told of it.
"""

from __future__ import annotations

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from linker.direct import DirectLinker
from linker.store import SharedStore

DELAY_US = 40
PAGES_PER_MS = 200  # 5 us a page
STREAMS, DEPTH, SHARED_DEPTH = 3, 8, 3
RANKS = 2

ranks = st.integers(0, RANKS - 1)
streams = st.integers(0, STREAMS - 1)
depths = st.integers(0, DEPTH)


def chain(stream: int, start: int, stop: int) -> np.ndarray:
    """Keys of pages start..stop-1 of a stream; the first SHARED_DEPTH pages are the same in all."""
    return np.array(
        [1 + depth if depth < SHARED_DEPTH else 1000 * (stream + 1) + depth for depth in range(start, stop)],
        dtype=np.int64,
    )


class TwoLinkers(RuleBasedStateMachine):
    @initialize(warm_pages=depths)
    def start(self, warm_pages):
        self.now_us = 0
        self.linkers, self.stored, self.unsaid, self.open = [], [], [], []
        self.ended: list[set[int]] = []
        warm = chain(0, 0, warm_pages)
        for _ in range(RANKS):
            store = SharedStore()
            store.warm(warm)
            self.linkers.append(
                DirectLinker(store, skips_swa=True, delay_us=DELAY_US, pages_per_ms=PAGES_PER_MS)
            )
            self.stored.append(set(warm.tolist()))
            self.unsaid.append([])  # keys whose store completed since the last exchange
            self.open.append({})  # ticket -> (due_us, kind, keys)
            self.ended.append(set())

    def longest_prefix(self, rank: int, keys: np.ndarray) -> int:
        return next((i for i, key in enumerate(keys.tolist()) if key not in self.stored[rank]), len(keys))

    def remember(self, rank: int, ticket: int, kind: str, keys: list[int]) -> int:
        assert ticket not in self.open[rank] and ticket not in self.ended[rank], "tickets are used once"
        due_us = self.now_us + DELAY_US + 1000 // PAGES_PER_MS * len(keys)
        self.open[rank][ticket] = (due_us, kind, keys)
        return due_us

    @rule(rank=ranks, stream=streams, hit=depths)
    def load_what_is_found(self, rank, stream, hit):
        keys = chain(stream, hit, DEPTH)
        found = self.linkers[rank].lookup(keys)
        assert found == self.longest_prefix(rank, keys)
        if found:
            ticket, due_us = self.linkers[rank].load(stream, keys[:found], keys[:found] + 1, self.now_us)
            assert due_us == self.remember(rank, ticket, "load", keys[:found].tolist())

    @rule(rank=ranks, stream=streams, upto=depths)
    def offload(self, rank, stream, upto):
        keys = chain(stream, 0, upto)
        on_their_way = {
            key for _, kind, moving in self.open[rank].values() if kind == "offload" for key in moving
        }
        expected = [key for key in keys.tolist() if key not in self.stored[rank] | on_their_way]
        ticket = self.linkers[rank].offload(stream, keys, keys + 1, self.now_us)
        assert (ticket is None) == (not expected)
        if ticket is not None:
            assert (self.linkers[rank].pages_of(ticket) - 1).tolist() == expected
            self.remember(rank, ticket, "offload", expected)

    @rule(rank=ranks, number=st.integers(1, 12))
    def cancel(self, rank, number):
        assert self.linkers[rank].cancel(number) == (number in self.open[rank])
        if self.open[rank].pop(number, None):
            self.ended[rank].add(number)

    @rule(rank=ranks, later_us=st.integers(0, 2 * DELAY_US))
    def poll(self, rank, later_us):
        self.now_us += later_us
        due = sorted((t[0], ticket) for ticket, t in self.open[rank].items() if t[0] <= self.now_us)
        completions = self.linkers[rank].poll(self.now_us)
        assert [(done.due_us, done.ticket) for done in completions] == due
        for done in completions:
            assert done.ticket not in self.ended[rank], "a transfer ends once"
            _, kind, keys = self.open[rank].pop(done.ticket)
            assert (done.kind, done.pages, done.ok) == (kind, len(keys), True)
            self.ended[rank].add(done.ticket)
            if kind == "offload":
                self.unsaid[rank] += [key for key in keys if key not in self.stored[rank]]
                self.stored[rank].update(keys)

    @rule()
    def exchange(self):
        news = [linker.exchange() for linker in self.linkers]
        for rank, words in enumerate(news):
            assert sorted(np.frombuffer(words, "<i8").tolist()) == sorted(self.unsaid[rank])
        for reader in range(RANKS):
            for writer in range(RANKS):
                if writer != reader:
                    self.linkers[reader].learn(news[writer])
                    self.stored[reader].update(self.unsaid[writer])
        self.unsaid = [[] for _ in range(RANKS)]

    @invariant()
    def linkers_agree_with_the_model(self):
        for rank, linker in enumerate(self.linkers):
            for stream in range(STREAMS):
                keys = chain(stream, 0, DEPTH)
                assert linker.lookup(keys) == self.longest_prefix(rank, keys)
            kinds = [kind for _, kind, _ in self.open[rank].values()]
            assert linker.in_flight() == (kinds.count("load"), kinds.count("offload"))
            assert linker.next_due_us() == min((t[0] for t in self.open[rank].values()), default=None)

    def teardown(self):
        """Whatever was queued ends; nothing ends twice."""
        if hasattr(self, "linkers"):
            for rank in range(RANKS):
                self.poll(rank, DELAY_US + 5 * DEPTH + 1)
                assert self.linkers[rank].in_flight() == (0, 0)
                assert self.linkers[rank].poll(self.now_us + 10**9) == []


TestTwoLinkers = TwoLinkers.TestCase
TestTwoLinkers.settings = settings(max_examples=60, stateful_step_count=30, deadline=None, derandomize=True)
