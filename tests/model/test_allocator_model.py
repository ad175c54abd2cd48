"""HybridSWAAllocator against plain sets and dicts, under random batches, frees, groups and window evictions.

`unpatched` is driven only with segments that have peers; a control shows that the oracle flags it otherwise.
"""

import pytest
import torch
from allocator_mutants import MUTANTS
from allocator_oracle import Oracle, Row
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from allocator.hybrid_swa import HybridSWAAllocator
from allocator.release import RELEASE_STRATEGIES

FULL_PAGES, SWA_PAGES = 14, 9
PAGE_SIZES = (1, 16, 64, 256)


def as_tensor(values):
    return torch.tensor(values, dtype=torch.int64)


class AllocatorMachine(RuleBasedStateMachine):
    """Rows are requests; each owns its pages from edge to edge."""

    page_size = 16
    release = "unpatched"
    allocator_type = HybridSWAAllocator
    unmapped_segments = False  # may a segment without peers reach free_swa_segment?

    def __init__(self):
        super().__init__()
        page = self.page_size
        self.allocator = self.allocator_type(FULL_PAGES * page, SWA_PAGES * page, page, release=self.release)
        self.oracle = Oracle(FULL_PAGES, SWA_PAGES, page)
        self.rows = []

    def peers(self, slots):
        return self.allocator.translate_loc_from_full_to_swa(as_tensor(slots)).tolist()

    def pages_for(self, tokens):
        return -(-tokens // self.page_size)

    def has_room(self, pages, swa=True):
        return pages <= len(self.oracle.full_free) and (not swa or pages <= len(self.oracle.swa_free))

    def pick(self, data, at_most):
        count = data.draw(st.integers(1, min(at_most, len(self.rows))))
        return data.draw(st.permutations(self.rows))[:count]

    # Lending

    @rule(pages=st.integers(0, 4))
    def alloc(self, pages):
        slots = self.allocator.alloc(pages * self.page_size)
        assert (slots is not None) == self.has_room(pages)
        if slots is not None and pages:
            self.oracle.lend(slots.tolist(), self.peers(slots.tolist()))
            self.rows.append(Row(slots.tolist()))

    @rule(pages=st.integers(1, 4))
    def load_without_swa(self, pages):
        slots = self.allocator.full_attn_allocator.alloc(pages * self.page_size)
        assert (slots is not None) == self.has_room(pages, swa=False)
        if slots is not None:
            self.oracle.lend(slots.tolist(), None)
            self.rows.append(Row(slots.tolist(), loaded=len(slots)))

    @rule(data=st.data(), fresh=st.integers(0, 2))
    def extend(self, data, fresh):
        old = self.pick(data, 3) if self.rows else []
        batch = old + [Row([]) for _ in range(fresh)]
        new = [data.draw(st.integers(1, 2 * self.page_size + 2)) for _ in batch]
        prefix = [len(row.slots) for row in batch]
        seq = [p + n for p, n in zip(prefix, new, strict=True)]
        last = [row.slots[-1] if row.slots else -1 for row in batch]
        slots = self.allocator.alloc_extend(
            as_tensor(prefix), as_tensor(prefix), as_tensor(seq), as_tensor(seq), as_tensor(last), sum(new)
        )
        need = sum(self.pages_for(s) - self.pages_for(p) for p, s in zip(prefix, seq, strict=True))
        assert (slots is not None) == self.has_room(need)
        if slots is not None:
            self.append(batch, torch.split(slots, new))

    @precondition(lambda self: self.rows)
    @rule(data=st.data())
    def decode(self, data):
        batch = self.pick(data, 4)
        seq = as_tensor([len(row.slots) + 1 for row in batch])
        slots = self.allocator.alloc_decode(seq, seq, as_tensor([row.slots[-1] for row in batch]))
        need = sum(len(row.slots) % self.page_size == 0 for row in batch)
        assert (slots is not None) == self.has_room(need)
        if slots is not None:
            self.append(batch, torch.split(slots, 1))

    def append(self, batch, runs):
        for row, run in zip(batch, runs, strict=True):
            slots = run.tolist()
            peers = self.peers(slots)
            for chain in (row.slots[-1:] + slots, self.peers(row.slots[-1:]) + peers):
                first = len(row.slots) - (len(chain) - len(slots))
                for at in range(1, len(chain)):
                    if (first + at) % self.page_size:
                        assert chain[at] == chain[at - 1] + 1, "a page's tokens are consecutive slots"
            for at, slot in enumerate(slots, len(row.slots)):
                assert slot % self.page_size == at % self.page_size
            self.oracle.lend(slots, peers)
            row.slots += slots
            if row not in self.rows:
                self.rows.append(row)

    # Reclaiming

    @precondition(lambda self: self.rows)
    @rule(data=st.data())
    def evict_window(self, data):
        """Frees the SWA side of a row's first whole pages, from what was evicted before or is unmapped."""
        row = data.draw(st.sampled_from(self.rows))
        whole = len(row.slots) // self.page_size * self.page_size
        begin = 0 if self.unmapped_segments and data.draw(st.booleans()) else max(row.loaded, row.evicted)
        end = data.draw(st.integers(0, whole // self.page_size)) * self.page_size
        if begin < end:
            segment = row.slots[begin:end]
            self.allocator.free_swa_segment(as_tensor(segment), start_pos=begin)
            self.oracle.reclaim_swa(segment)
            row.evicted = max(row.evicted, end)

    @precondition(lambda self: self.rows)
    @rule(data=st.data(), way=st.sampled_from(["set", "two sides", "segment", "split", "page ids"]))
    def finish(self, data, way):
        row = data.draw(st.sampled_from(self.rows))
        slots, page = as_tensor(row.slots), self.page_size
        live = 0 if self.unmapped_segments else max(row.loaded, row.evicted)
        if way == "set":
            self.allocator.free(
                slots[torch.randperm(len(slots), generator=torch.Generator().manual_seed(len(slots)))]
            )
        elif way == "two sides":
            self.allocator.free_swa(slots[:: max(1, page // 2)])
            self.allocator.free_full(slots.repeat(2))
        elif way == "segment":
            # A segment may name its first page from any token on: the page goes back whole.
            self.allocator.free_full_segment(slots[:live], start_pos=0)
            begin = live + data.draw(st.integers(0, max(0, min(page, len(slots) - live) - 1)))
            self.allocator.free_segment(slots[begin:], start_pos=begin)
        elif way == "split":
            # The cut is a page's start; what precedes the live part has no peers, as a segment or as a set.
            cut = data.draw(st.integers(live // page, len(slots) // page)) * page
            self.allocator.free(slots[:live])
            self.allocator.free_segment(slots[live:cut], start_pos=live)
            self.allocator.free_segment(slots[cut:], start_pos=cut)
        else:
            self.allocator.free_swa(slots)
            self.allocator.full_attn_allocator.free_page_ids(slots[::page] // page)
        self.oracle.reclaim_swa(row.slots)
        self.oracle.reclaim_full(row.slots)
        self.rows.remove(row)

    @precondition(lambda self: not self.oracle.grouped)
    @rule()
    def begin_group(self):
        self.allocator.free_group_begin()
        self.oracle.grouped = True

    @precondition(lambda self: self.oracle.grouped)
    @rule()
    def end_group(self):
        self.allocator.free_group_end()
        self.oracle.end_group()

    @precondition(lambda self: self.oracle.grouped)
    @rule()
    def nested_group(self):
        with pytest.raises(AssertionError, match="cannot be nested"):
            self.allocator.free_group_begin()

    @invariant()
    def equal(self):
        assert self.oracle.differences(self.allocator) == []
        assert self.allocator.check_integrity() == []

    @invariant()
    def conserved(self):
        oracle = self.oracle
        full_lent = sum(self.pages_for(len(row.slots)) for row in self.rows)
        swa_lent = {swa // self.page_size for swa in oracle.peer.values()}
        assert len(oracle.full_free) + len(oracle.full_waiting) + full_lent == FULL_PAGES
        assert len(oracle.swa_free) + len(oracle.swa_waiting) + len(swa_lent) == SWA_PAGES


def run_machine(examples, shrink=True, **attributes):
    machine = type("Machine", (AllocatorMachine,), attributes)
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=30,
            deadline=None,
            phases=[Phase.generate, Phase.shrink] if shrink else [Phase.generate],
            report_multiple_bugs=False,
            derandomize=True,
            database=None,
            print_blob=False,
            suppress_health_check=list(HealthCheck),
        ),
    )


@pytest.mark.parametrize("page_size", PAGE_SIZES)
@pytest.mark.parametrize("release", RELEASE_STRATEGIES)
def test_allocator_equals_the_oracle(release, page_size):
    run_machine(25, page_size=page_size, release=release, unmapped_segments=release != "unpatched")


@pytest.mark.parametrize("page_size", PAGE_SIZES)
def test_control_the_oracle_flags_unpatched_on_unmapped_segments(page_size):
    with pytest.raises(AssertionError, match=r"SWA free list differs|available_size|outside 1"):
        run_machine(400, shrink=False, page_size=page_size, unmapped_segments=True)


def test_control_one_unmapped_page_is_seen_under_load_where_no_assert_fires():
    allocator = HybridSWAAllocator(FULL_PAGES * 16, SWA_PAGES * 16, 16)
    oracle = Oracle(FULL_PAGES, SWA_PAGES, 16)
    held = allocator.alloc(64)
    oracle.lend(held.tolist(), allocator.translate_loc_from_full_to_swa(held).tolist())
    loaded = allocator.full_attn_allocator.alloc(16)
    oracle.lend(loaded.tolist(), None)
    allocator.free_swa_segment(loaded, start_pos=0)
    oracle.reclaim_swa(loaded.tolist())
    assert oracle.differences(allocator) == ["SWA free list differs: {0: 1}", f"SWA available {6 * 16}"]


@pytest.mark.parametrize("mutant", MUTANTS)
def test_control_the_oracle_flags_a_mutant(mutant):
    with pytest.raises(AssertionError):
        # It stops at the first failure. What hypothesis draws varies with the code that is loaded, so there is slack.
        run_machine(600, shrink=False, page_size=16, release="filter-per-call", allocator_type=mutant)
