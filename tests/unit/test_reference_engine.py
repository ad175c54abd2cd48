"""The reference engine, verb by verb: what upstream's call order does to the pools."""

from __future__ import annotations

import pytest
from reference_bench import KEYS, PAGE, assert_whole, engine, finish, prefill, spec, swa_free


def test_a_load_that_skips_swa_gives_full_slots_without_peers():
    target = engine("filter-per-group", warm=KEYS)
    target.open(spec(1, KEYS, 20 * PAGE + 30))
    admission = target.admit(1, 0)
    assert (admission.cached, admission.loaded) == (0, 20 * PAGE)
    assert admission.ready_us == 5000
    starts = target.table(1) * PAGE
    assert target.allocators().full_to_swa_index_mapping[starts].tolist() == [0] * 20
    assert target.marks()["linker_loaded_without_swa"] == 1


def test_unpatched_idle_rank_asserts_at_the_flush_after_the_first_checkpoint():
    target = engine("unpatched", warm=KEYS)
    with pytest.raises(AssertionError, match="free_group_end: SWA"):
        prefill(target, spec(1, KEYS, 20 * PAGE + 30))
    assert swa_free(target).count(0) == 18  # 20 loaded pages, less the two that the window still touches


def test_patched_rank_frees_nothing_for_them():
    target = engine("filter-per-group", warm=KEYS)
    prefill(target, spec(1, KEYS, 20 * PAGE + 30))
    assert 0 not in swa_free(target)
    finish(target, 1)
    assert_whole(target)


def test_silent_case_more_live_pages_than_bogus_returns():
    target = engine("unpatched", warm=KEYS)
    prefill(target, spec(2, [], 30 * PAGE))  # 30 pages, of which the window keeps two
    target.reserve([(2, 40 * PAGE)])  # and 40 more on loan
    prefill(target, spec(1, KEYS, 20 * PAGE + 30))  # no assert
    assert swa_free(target).count(0) == 18
    target.open(spec(3, [], 2 * PAGE))
    target.admit(3, 0)
    assert target.extend([(3, 2 * PAGE)])
    peers = target.allocators().full_to_swa_index_mapping[target.table(3) * PAGE]
    assert peers.tolist() == [0, 0]  # one padding page, lent twice


def test_without_a_linker_the_cache_eviction_of_a_window_evicted_tail_asserts():
    target = engine("unpatched", "linker.enabled=false")
    prefill(target, spec(1, [], 10 * PAGE))
    finish(target, 1)
    with pytest.raises(AssertionError, match="SWA"):
        target.drain()
    assert 0 in swa_free(target)


def test_copies_of_cached_pages_go_back():
    target = engine("filter-per-group", "linker.enabled=false")
    for rid in (1, 2):
        target.open(spec(rid, KEYS, 20 * PAGE + 30))
        assert target.admit(rid, 0).cached == 0
    assert target.extend([(1, 20 * PAGE + 30), (2, 20 * PAGE + 30)])
    target.results_begin()
    target.commit([(1, 20 * PAGE + 30), (2, 20 * PAGE + 30)])
    target.checkpoint(1)
    target.checkpoint(2)
    target.results_end()
    assert target.table(1)[:20].tolist() == target.table(2)[:20].tolist()
    assert target.table(1)[20] != target.table(2)[20]
    assert target.counts()["full"][1] == 128 - 22
    finish(target, 1)
    finish(target, 2)
    assert_whole(target)


def test_a_page_aligned_prompt_asked_again_recovers_a_tombstone():
    target = engine("filter-per-group", "linker.enabled=false")
    prefill(target, spec(1, KEYS, 20 * PAGE))
    page = int(target.table(1)[19])
    finish(target, 1)
    prefill(target, spec(3, KEYS, 22 * PAGE))
    finish(target, 3)
    target.evict(0, 2 * PAGE)  # pages 18 and 19, which are used no more than the two behind them
    assert target.counts()["swa"][1:] == (126, 2, 0)
    admission = prefill(target, spec(2, KEYS, 20 * PAGE))
    assert admission.cached == 19 * PAGE  # the last page is computed anew: it gives the first logits
    assert target.marks()["tombstone_recovered"] == 1
    mapping = target.allocators().full_to_swa_index_mapping
    assert [int(mapping[p * PAGE]) > 0 for p in target.table(2)] == [False] * 19 + [True]
    assert page in target.table(2)
    finish(target, 2)
    assert_whole(target)


def test_refused_admission_leaves_everything_as_it_was():
    target = engine("filter-per-group", warm=KEYS)
    prefill(target, spec(1, [], 40 * PAGE))
    before = target.counts(), target.leftover()
    target.open(spec(2, KEYS, 30 * PAGE))
    assert target.admit(2, 60 * PAGE) is None
    assert (target.counts(), target.leftover()) == before


def test_extend_is_all_or_nothing():
    target = engine("filter-per-group", "linker.enabled=false")
    for rid in (1, 2):
        target.open(spec(rid, [], 100 * PAGE))
        target.admit(rid, -100 * PAGE)
    before = target.counts()
    assert not target.extend([(1, 90 * PAGE), (2, 90 * PAGE)])
    assert target.counts() == before
    assert target.extend([(1, 90 * PAGE)])


def test_draft_reserve_comes_back_at_the_end():
    target = engine("filter-per-group", "linker.enabled=false")
    prefill(target, spec(1, [], 3 * PAGE - 4))
    assert target.reserve([(1, 8)])
    assert len(target.table(1)) == 4
    target.commit([(1, 3)])
    finish(target, 1)
    assert target.marks()["spec_tail_returned"] == 1
    assert_whole(target)


def test_retraction_keeps_what_is_cached():
    target = engine("filter-per-group", "linker.enabled=false")
    prefill(target, spec(1, KEYS, 10 * PAGE + 5))
    target.retract(1)
    target.close(1)
    target.open(spec(1, KEYS, 10 * PAGE + 9))
    assert target.admit(1, 0).cached == 10 * PAGE
    target.abort(1)
    assert_whole(target)


def test_abort_before_the_load_has_ended_cancels_it():
    target = engine("filter-per-group", warm=KEYS)
    target.open(spec(1, KEYS, 20 * PAGE + 30))
    target.admit(1, 0)
    assert target.leftover()[2] == 1
    target.abort(1)
    assert target.leftover() == (0, 0, 0, 0, 0)
    assert target.pending_us() is None
    assert_whole(target)


def test_a_linker_that_restores_swa_gives_the_window_its_peers():
    target = engine("filter-per-group", "pool.unified_kv=false")
    prefill(target, spec(1, KEYS, 20 * PAGE))
    finish(target, 1)
    target.evict(128 * PAGE, 0)
    admission = prefill(target, spec(2, KEYS, 20 * PAGE + 30))
    assert admission.cached == 0
    assert admission.loaded == 20 * PAGE
    mapping = target.allocators().full_to_swa_index_mapping
    mapped = [int(mapping[page * PAGE]) > 0 for page in target.table(2)]
    assert mapped == [False] * 18 + [True] * 3
    finish(target, 2)


def test_a_ring_leaves_the_paged_swa_pool_alone():
    target = engine("unpatched", "pool.swa_ring=true", warm=KEYS)
    prefill(target, spec(1, KEYS, 20 * PAGE + 30))
    finish(target, 1)
    assert len(swa_free(target)) == 128
    assert_whole(target)
