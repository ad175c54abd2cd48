"""Random walks over real allocators under watch: a right one has no finding, each wrong one is flagged.

The walk keeps what it was lent and checks the shadow against it, so the shadow can't be right by accident.
"""

import numpy as np
import pytest
import torch
from allocator_mutants import (
    ClearsNamedSlots,
    FreesAtTheFlush,
    IgnoresTheStart,
    KeepsThePeer,
    LosesTheGroup,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from allocator.hybrid_swa import HybridSWAAllocator
from stress.check.event import Cause, EdgeShape, EventKind, PoolShape
from stress.check.shadow import Ledger
from stress.probe import watch

PAGE, FULL, SWA = 4, 24, 12
POOLS = (PoolShape("full", FULL, PAGE, 0), PoolShape("swa", SWA, PAGE, 0))
EDGES = (EdgeShape("full", "swa"),)
STEPS = st.lists(st.tuples(st.integers(0, 9), st.integers(1, 4), st.integers(0, 99)), min_size=5, max_size=40)


class Walk:
    """Rows of pages, each lent in one way and given back in another."""

    def __init__(self, allocator, level=3):
        self.allocator = allocator
        self.ledger = Ledger(POOLS, EDGES, level)
        self.watch = watch(allocator, POOLS, EDGES, self.ledger)
        self.rows: dict[int, torch.Tensor] = {}
        self.number = 0
        self.grouped = False

    def run(self, steps):
        verbs = (
            self.lend,
            self.load,
            self.extend,
            self.window,
            self.drop_segment,
            self.drop_set,
            self.drop_sides,
            self.move,
            self.group,
            self.lend,
        )
        for choice, size, pick in steps:
            self.step(verbs[choice], size, pick)
        if self.grouped:
            self.step(self.group, 0, 0)
        for _ in range(len(self.rows)):
            self.step(self.drop_segment, 0, 0)
        return self

    def step(self, verb, size, pick):
        self.number += 1
        self.watch.begin(Cause(self.number, verb.__name__, -1, ""), self.number)
        try:
            verb(size, pick)
        except AssertionError:
            # A wrong allocator's own assertion; the ledger is judged, not that.
            self.grouped = not self.allocator.is_not_in_free_group
        self.watch.end()

    def row(self, pick):
        rids = list(self.rows)
        return rids[pick % len(rids)] if rids else None

    def keep(self, slots):
        if slots is not None:
            self.rows[self.number] = slots

    def lend(self, size, pick):
        self.keep(self.allocator.alloc(size * PAGE))

    def load(self, size, pick):
        self.keep(self.allocator.full_attn_allocator.alloc(size * PAGE))

    def extend(self, size, pick):
        tokens = torch.tensor([size * PAGE - pick % PAGE])
        zero = torch.tensor([0])
        self.keep(self.allocator.alloc_extend(zero, zero, tokens, tokens, zero - 1, int(tokens)))

    def window(self, size, pick):
        rid = self.row(pick)
        if rid is not None:
            self.allocator.free_swa_segment(self.rows[rid][: size * PAGE], start_pos=0)

    def drop_segment(self, size, pick):
        rid = self.row(pick)
        if rid is not None:
            self.allocator.free_segment(self.rows.pop(rid), start_pos=0)

    def drop_set(self, size, pick):
        rid = self.row(pick)
        if rid is not None:
            self.allocator.free(self.rows.pop(rid).flip(0))

    def drop_sides(self, size, pick):
        rid = self.row(pick)
        if rid is not None:
            slots = self.rows.pop(rid)
            # The first slot alone names its page; the rest of the row starts inside it.
            self.allocator.free_swa_segment(slots[1:] if len(slots) > 1 else slots, start_pos=1)
            self.allocator.free_full_segment(slots, start_pos=0)

    def move(self, size, pick):
        """Recovery: the peers of one page move to a page that has none."""
        whole = [slots for slots in self.rows.values() if len(slots) >= PAGE]
        if len(whole) < 2:
            return
        own, other = whole[pick % len(whole)][:PAGE], whole[(pick + 1) % len(whole)][:PAGE]
        peers = self.allocator.translate_loc_from_full_to_swa(own)
        if (peers > 0).all() and not self.allocator.translate_loc_from_full_to_swa(other).any():
            self.allocator.clear_full_to_swa_mapping(own)
            self.allocator.set_full_to_swa_mapping(other, peers)

    def group(self, size, pick):
        if self.grouped:
            self.grouped = False
            self.allocator.free_group_end()
        else:
            self.allocator.free_group_begin()
            self.grouped = True


def right(release):
    return HybridSWAAllocator(FULL * PAGE, SWA * PAGE, PAGE, release=release)


@pytest.mark.parametrize("release", ["filter-per-call", "filter-per-group"])
@settings(max_examples=60)
@given(steps=STEPS)
def test_a_right_allocator_has_no_finding_and_the_shadow_is_its_state(release, steps):
    walk = Walk(right(release)).run(steps)
    assert walk.ledger.crashed == ""
    assert walk.ledger.findings == {}, walk.ledger.kept
    for pool, name in (
        (walk.allocator.full_attn_allocator, "full"),
        (walk.allocator.swa_attn_allocator, "swa"),
    ):
        shadow = walk.ledger.shadow.pools[name]
        assert np.flatnonzero(shadow.on_loan).tolist() == []
        assert (shadow.lent, shadow.asked_pages, shadow.surplus) == (0, 0, 0)
        assert len(pool.get_all_free_pages()) == shadow.shape.pages


@settings(max_examples=60)
@given(steps=STEPS)
def test_the_shadow_follows_a_right_allocator_in_mid_run(steps):
    walk = Walk(right("filter-per-group"))
    verbs = (
        walk.lend,
        walk.load,
        walk.extend,
        walk.window,
        walk.drop_segment,
        walk.drop_set,
        walk.move,
        walk.group,
    )
    for choice, size, pick in steps:
        walk.step(verbs[choice % len(verbs)], size, pick)
        shadow = walk.ledger.shadow
        for name, pool in (
            ("full", walk.allocator.full_attn_allocator),
            ("swa", walk.allocator.swa_attn_allocator),
        ):
            lent = set(range(1, pool.num_pages + 1)) - set(pool.get_all_free_pages().tolist())
            assert set(np.flatnonzero(shadow.pools[name].on_loan).tolist()) == lent
        entries = walk.allocator.full_to_swa_index_mapping[: (FULL + 1) * PAGE : PAGE] // PAGE
        assert shadow.edges[0].peer.tolist() == entries.tolist()
    assert walk.ledger.findings == {} and walk.ledger.crashed == ""


# The shortest walk that reaches each fault's trigger, and the rule that must be among those that fire.
LEND, LOAD, EXTEND, WINDOW, SEGMENT, SET, SIDES, MOVE, GROUP = range(9)
WRONG = [
    (KeepsThePeer, "filter-per-call", "I4", [(LEND, 2, 0), (WINDOW, 2, 0)]),
    (LosesTheGroup, "unpatched", "I7", [(LEND, 2, 0), (GROUP, 0, 0), (SEGMENT, 0, 0), (GROUP, 0, 0)]),
    (IgnoresTheStart, "unpatched", "I7", [(EXTEND, 3, 3), (SIDES, 0, 0)]),
    (HybridSWAAllocator, "unpatched", "I1", [(LOAD, 2, 0), (WINDOW, 2, 0)]),
]


@pytest.mark.parametrize(("wrong", "release", "rule", "steps"), WRONG)
def test_a_wrong_allocator_is_flagged(wrong, release, rule, steps):
    walk = Walk(wrong(FULL * PAGE, SWA * PAGE, PAGE, release=release)).run(steps)
    assert walk.ledger.crashed == ""
    assert rule in walk.ledger.findings, walk.ledger.findings
    twin = Walk(right("filter-per-call")).run(steps)
    assert twin.ledger.findings == {} and twin.ledger.crashed == ""


@pytest.mark.parametrize(("kind", "expected"), [(ClearsNamedSlots, True), (HybridSWAAllocator, False)])
def test_the_page_of_which_one_token_is_cleared(kind, expected):
    walk = Walk(kind(FULL * PAGE, SWA * PAGE, PAGE))
    walk.step(walk.lend, 2, 0)
    slots = next(iter(walk.rows.values()))
    walk.step(lambda size, pick: walk.allocator.free_swa(slots[:1]), 0, 0)
    assert ("I8" in walk.ledger.findings) is expected


@pytest.mark.parametrize(("kind", "expected"), [(FreesAtTheFlush, True), (HybridSWAAllocator, False)])
def test_a_free_resolved_at_the_flush_although_the_page_is_on_loan(kind, expected):
    walk = Walk(kind(FULL * PAGE, SWA * PAGE, PAGE, release="filter-per-call"))
    allocator = walk.allocator
    walk.step(walk.lend, 1, 0)
    slots = next(iter(walk.rows.values()))
    walk.step(walk.group, 0, 0)
    walk.step(lambda size, pick: allocator.free_swa_segment(slots, start_pos=0), 0, 0)
    asked = walk.number

    def rebind(size, pick):
        allocator.set_full_to_swa_mapping(slots, allocator.swa_attn_allocator.alloc(PAGE))

    walk.step(rebind, 0, 0)
    walk.step(walk.group, 0, 0)
    assert ("I7" in walk.ledger.findings) is expected
    if expected:
        assert walk.ledger.first.operation == asked


def test_the_walk_meets_groups_loads_and_windows():
    """Without this the clean walks could be clean for want of anything to find."""
    walk = Walk(right("filter-per-group"))
    kinds = set()
    walk.ledger.listen(lambda event: kinds.add(event.kind))
    walk.run([(choice, 2, choice) for choice in (LEND, LOAD, EXTEND, GROUP, WINDOW, SIDES, MOVE, GROUP, SET)])
    assert {EventKind.LEND, EventKind.RETURN, EventKind.INTENT, EventKind.BIND, EventKind.GROUP_END} <= kinds
