"""What the reference does as SGLang does it, and where releases differ: transfers, cut hits, loads, their switches."""

from __future__ import annotations

from reference_bench import KEYS, PAGE, assert_whole, engine, finish, prefill, spec

from stress.engine.reference.habits import HABITS


def test_each_new_node_is_one_transfer_and_one_lock_until_it_has_ended():
    target = engine("filter-per-group", "linker.delay_ms=2000")
    prefill(target, spec(1, [], 10 * PAGE))
    # Seven pages that left the window, one that may still be read, and the last window by itself.
    assert target.leftover()[1:4] == (3, 0, 3)
    target.abort(1)
    assert target.counts()["full"][2:] == (0, 10)
    target.now_us += 2_000_000
    assert target.poll() == 3
    assert target.leftover() == (0, 0, 0, 0, 0) and target.counts()["full"][2:] == (10, 0)
    assert_whole(target)


def test_an_offload_with_nothing_to_send_is_pinned_until_the_next_poll():
    target = engine("filter-per-group", warm=KEYS)
    target.open(spec(1, KEYS, 20 * PAGE + 30))
    target.admit(1, 0)
    target.extend([(1, 20 * PAGE + 30)])
    target.now_us += 1_000_000
    target.poll()
    target.results_begin()
    target.commit([(1, 30)])
    target.checkpoint(1)
    target.results_end()
    assert target.leftover()[1:4] == (1, 0, 0)  # the store had every page
    assert target.pending_us() == target.now_us
    target.poll()
    assert target.leftover()[1] == 0 and target.pending_us() is None


def test_without_room_for_a_load_its_tokens_are_computed():
    target = engine("filter-per-group", warm=KEYS)
    prefill(target, spec(2, [], 115 * PAGE))
    target.open(spec(1, KEYS, 20 * PAGE + 30))
    admission = target.admit(1, -200 * PAGE)
    assert (admission.cached, admission.loaded, admission.ready_us) == (0, 0, target.now_us)
    assert target.running() == [2, 1] and target.leftover()[2] == 0


def test_the_first_insert_after_a_cut_hit_ends_where_prefixes_part():
    target = engine("filter-per-group", "linker.enabled=false", "pool.unified_kv=false")
    prefill(target, spec(1, KEYS, 20 * PAGE))
    finish(target, 1)
    prefix = KEYS[:10]
    target.open(spec(2, prefix, 30 * PAGE))
    # FULL knows ten pages, whose window was given back: the hit is cut to nothing, and the insert ends at ten.
    assert target.admit(2, 0).cached == 0
    assert target.extend([(2, 30 * PAGE)])
    target.results_begin()
    target.commit([(2, 30 * PAGE)])
    target.checkpoint(2)
    target.results_end()
    assert len(target.cached_pages()) == 20
    target.open(spec(3, prefix, 11 * PAGE))
    assert target.admit(3, 0).cached == 10 * PAGE  # a window is live there now
    target.abort(3)
    finish(target, 2)
    assert len(target.cached_pages()) == 20 + 20
    assert_whole(target)


def test_a_release_that_asks_for_swa_restores_nothing_from_a_store_without_it():
    target = engine("patched", warm=KEYS, habits=HABITS["0.5.20"])
    target.open(spec(1, KEYS, 20 * PAGE + 30))
    assert target.admit(1, 0).loaded == 0


def test_a_load_that_is_inserted_at_once_is_the_caches_and_pinned_until_it_lands():
    target = engine("patched", "pool.unified_kv=false", habits=HABITS["0.5.20"])
    prefill(target, spec(1, KEYS, 20 * PAGE))
    finish(target, 1)
    target.evict(128 * PAGE, 0)
    for gone_before_its_batch in (True, False):
        target.open(spec(2, KEYS, 20 * PAGE + 30))
        assert target.admit(2, 0).loaded == 20 * PAGE
        assert len(target.cached_pages()) == 20 and target.leftover()[1:3] == (1, 1)
        if not gone_before_its_batch:
            target.extend([(2, 20 * PAGE + 30)])
        target.abort(2)
        target.close(2)
        assert target.leftover()[:3] == ((0, 0, 0) if gone_before_its_batch else (1, 1, 1))
        if gone_before_its_batch:
            target.evict(128 * PAGE, 0)
    target.now_us += 1_000_000
    assert target.poll() == 1
    assert_whole(target)


def test_a_checkpoint_that_is_not_offloaded_goes_out_with_the_chain_of_the_finish():
    target = engine("patched", "pool.unified_kv=false", habits=HABITS["0.5.20"])
    prefill(target, spec(1, [], 10 * PAGE))
    assert target.leftover()[1:4] == (0, 0, 0)
    target.results_begin()
    target.finish(1)
    target.results_end()
    assert target.leftover()[1:4] == (3, 0, 3)
