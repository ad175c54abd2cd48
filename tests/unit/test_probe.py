"""The probe tells what happened, once and in order, and changes nothing."""

import numpy as np
import pytest
import torch
from probe_bench import EDGES, PAGE, POOLS, Log, extend, hybrid, trace

from allocator.page_pool import PagePool
from stress.check.event import ALL_POOLS, EventKind
from stress.check.shadow import Ledger
from stress.probe import watch
from stress.probe.lent_pages import page_starts_of_decode, page_starts_of_extend


def test_lends_are_read_from_the_answer():
    allocator, log = hybrid(), Log()
    watch(allocator, POOLS, EDGES, log)
    slots = extend(allocator, [(0, 6), (0, 4), (0, 1)], [-1, -1, -1])
    assert log.told(EventKind.LEND) == [("lend", "full", [1, 2, 3, 4]), ("lend", "swa", [1, 2, 3, 4])]
    extend(allocator, [(6, 13), (4, 5)], [int(slots[5]), int(slots[9])])
    assert log.told(EventKind.LEND)[2:] == [("lend", "full", [5, 6, 7]), ("lend", "swa", [5, 6, 7])]
    lens = torch.tensor([2, 9])
    allocator.alloc_decode(lens, lens, torch.tensor([int(slots[10]), 27]))
    assert log.told(EventKind.LEND)[4:] == [("lend", "full", [8]), ("lend", "swa", [8])]
    allocator.full_attn_allocator.alloc(2 * PAGE)
    assert log.told(EventKind.LEND)[6:] == [("lend", "full", [9, 10])]
    assert log.findings == {} and log.crashed == ""


@pytest.mark.parametrize("page_size", [1, 4, 16])
def test_page_starts_agree_with_counting_tokens(page_size):
    state = 7
    for _ in range(200):
        rows = []
        for _ in range(state % 5 + 1):
            state = (state * 1103515245 + 12345) % (1 << 31)
            prefix = state % (3 * page_size)
            rows.append((prefix, prefix + (state >> 8) % (4 * page_size)))
        prefix, seq = map(list, zip(*rows, strict=True))
        expected, at = [], 0
        for lo, hi in rows:
            expected += [at + position - lo for position in range(lo, hi) if position % page_size == 0]
            at += hi - lo
        answer = np.arange(at)
        assert answer[page_starts_of_extend(prefix, seq, page_size)].tolist() == expected
    assert page_starts_of_decode([1, 4, 5, 9], 4) == [0, 2, 3]


def test_a_free_tells_intent_then_return_then_mapping():
    allocator, log = hybrid(), Log()
    slots = allocator.alloc(3 * PAGE)
    watch(allocator, POOLS, EDGES, log)
    log.limit_to(())
    allocator.free_segment(slots[1:], start_pos=1)
    kinds = [(e.kind.value, e.pool, e.pages.tolist(), e.method) for e in log.seen]
    assert kinds == [
        ("intent", "swa", [1, 2, 3], "free_segment"),
        ("intent", "full", [1, 2, 3], "free_segment"),
        ("return", "swa", [1, 2, 3], "free_page_ids"),
        ("return", "full", [1, 2, 3], "free_segment"),
        ("map", "swa", [1, 2, 3], "free_segment"),
    ]
    assert [e.peers.tolist() for e in log.seen if e.peers is not None] == [[1, 2, 3], [0, 0, 0]]
    assert {e.call for e in log.seen} == {1}


@pytest.mark.parametrize("name", ["free", "free_swa", "free_full"])
def test_set_shaped_frees_name_each_page_once(name):
    allocator, log = hybrid(), Log()
    watch(allocator, POOLS, EDGES, log)
    slots = allocator.alloc(4 * PAGE)
    chosen = slots[torch.tensor([9, 1, 2, 8, 0])]
    if name == "free_full":
        allocator.free_swa(chosen)
    getattr(allocator, name)(chosen)
    intents = [e.pages.tolist() for e in log.seen if e.kind is EventKind.INTENT and e.method == name]
    assert intents and all(pages == [3, 1] for pages in intents)
    assert log.findings == {} and log.crashed == ""


@pytest.mark.parametrize("outer", [True, False])
def test_a_free_is_understood_however_its_arguments_are_passed(outer):
    allocator, log = hybrid(), Log()
    watch(allocator, POOLS, EDGES, log)
    if outer:
        allocator.free_swa(indices=allocator.alloc(2 * PAGE))
        assert log.told(EventKind.INTENT) == [("intent", "swa", [1, 2])]
    else:
        allocator.full_attn_allocator.free(indices=allocator.full_attn_allocator.alloc(2 * PAGE))
        assert log.told(EventKind.INTENT) == [("intent", "full", [1, 2])]
    assert log.findings == {} and log.crashed == ""


def test_what_was_seen_is_told_when_the_target_asserts():
    allocator, log = hybrid(), Log()
    seen = watch(allocator, POOLS, EDGES, log)
    slots = allocator.full_attn_allocator.alloc(4 * PAGE)
    allocator.free_group_begin()
    allocator.free_swa_segment(slots, start_pos=0)
    with pytest.raises(AssertionError):
        allocator.free_group_end()
    assert log.told(EventKind.RETURN) == [("return", "swa", [0, 0, 0, 0])]
    assert log.told(EventKind.GROUP_END) == [("group_end", ALL_POOLS, [])]
    assert seen.raised and log.findings == {"I1": 4}


def test_events_are_copies():
    allocator, log = hybrid(), Log()
    watch(allocator, POOLS, EDGES, log)
    slots = allocator.alloc(2 * PAGE)
    allocator.free_segment(slots, start_pos=0)
    before = [(e.pages.copy(), None if e.peers is None else e.peers.copy()) for e in log.seen]
    slots.zero_()
    allocator.full_attn_allocator.free_pages.zero_()
    allocator.full_to_swa_index_mapping.fill_(99)
    for event, (pages, peers) in zip(log.seen, before, strict=True):
        assert (event.pages == pages).all() and (peers is None or (event.peers == peers).all())


def test_a_watched_target_answers_the_same_and_is_given_back_whole():
    bare, watched, log = hybrid(), hybrid(), Log(level=3)
    names = dict(vars(watched)), dict(vars(watched.full_attn_allocator))
    on = watch(watched, POOLS, EDGES, log)
    assert trace(watched) == trace(bare)
    assert log.findings == {} and log.crashed == "" and on.events > 20
    on.unwatch()
    assert (vars(watched).keys(), vars(watched.full_attn_allocator).keys()) == tuple(n.keys() for n in names)


def test_a_single_pool_is_watched_too():
    pool = PagePool(16 * PAGE, PAGE)
    ledger = Ledger(POOLS[1:], (), 2)
    on = watch(pool, POOLS[1:], (), ledger)
    slots = pool.alloc(4 * PAGE)
    pool.free_group_begin()
    pool.free_segment(slots[: 2 * PAGE], start_pos=0)
    pool.free_group_end()
    on.end()
    assert ledger.findings == {} and ledger.shadow.pools["swa"].lent == 2
    pool.free_page_ids(torch.tensor([0, 1]))
    on.end()
    assert ledger.findings == {"I1": 1, "I3": 1}
