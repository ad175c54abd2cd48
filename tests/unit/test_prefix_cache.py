"""Single properties of the prefix cache, each with the smallest tree that shows it."""

from __future__ import annotations

import numpy as np
import pytest
from prefix_bench import gone, ids, put

from allocator.prefix_cache import PrefixCache
from allocator.prefix_node import LockError


def test_an_empty_tree_hits_the_root_and_its_lock_covers_nothing() -> None:
    cache = PrefixCache(2, True)
    hit = cache.match(ids(1, 2))
    assert hit.node is cache.root and len(hit.pages) == 0 and hit.swa_from == 0
    cache.unlock(cache.lock(hit.node, "r1"))
    assert put(cache, [], []).node is cache.root
    assert cache.check_integrity() == [] and not cache.holders


def test_a_hit_inside_a_node_splits_it_and_the_old_node_keeps_the_deep_end() -> None:
    cache = PrefixCache(2, False)
    deep = put(cache, [1, 2, 3, 4], [11, 12, 13, 14], [0, 0, 0, 0]).node
    receipt = cache.lock(deep, "r1")
    hit = cache.match(ids(1, 2, 9))
    assert hit.pages.tolist() == [11, 12]
    assert (deep.start, deep.end, deep.parent) == (2, 4, hit.node)
    assert (hit.node.full_lock, hit.node.swa_lock) == (1, 1), "the front half is under the same receipt"
    cache.unlock(receipt)
    assert cache.counts() == (4, 0, 0, 0) and cache.check_integrity() == []
    assert cache.nodes_split == 1


def test_keys_are_compared_in_full_even_if_the_last_one_agrees() -> None:
    cache = PrefixCache(1, False)
    put(cache, [1, 2, 3], [11, 12, 13])
    assert cache.match(ids(1, 7, 3)).pages.tolist() == [11]


def test_negative_keys_are_keys_like_others() -> None:
    cache = PrefixCache(1, False)
    put(cache, [-5, -(2**63), 3], [11, 12, 13])
    cache.match(ids(-5))
    assert cache.match(ids(-5, -(2**63), 3)).pages.tolist() == [11, 12, 13]
    assert cache.check_integrity() == []


@pytest.mark.parametrize(
    ("live", "window", "hit", "open_hit"),
    [
        ([1, 1, 1, 1], 2, 4, 4),
        ([1, 1, 1, 0], 2, 3, 4),
        ([0, 0, 1, 1], 2, 4, 4),
        ([1, 1, 0, 1], 2, 2, 3),  # the last run is shorter than the window
        ([1, 0, 0, 1], 2, 1, 3),  # a whole prefix that is shorter than the window counts
        ([0, 1, 0, 1], 2, 0, 3),
        ([0, 0, 0, 0], 1, 0, 4),
    ],
)
def test_a_hit_ends_behind_a_live_window_or_without_the_gate_with_a_tombstone(
    live: list[int], window: int, hit: int, open_hit: int
) -> None:
    gated, open_ = PrefixCache(window, True), PrefixCache(window, False)
    for cache in (gated, open_):
        put(cache, [1, 2, 3, 4], [11, 12, 13, 14], live)
    found = gated.match(ids(1, 2, 3, 4))
    assert found.pages.tolist() == [11, 12, 13, 14][:hit] and found.known == 4
    found = open_.match(ids(1, 2, 3, 4))
    assert len(found.pages) == open_hit and found.known == 4
    assert all(live[found.swa_from : open_hit]) and (found.swa_from == 0 or not live[found.swa_from - 1])


def test_an_insert_keeps_the_trees_page_and_reports_the_callers_copy() -> None:
    cache = PrefixCache(2, False)
    put(cache, [1, 2, 3], [11, 12, 13])
    done = put(cache, [1, 2, 3, 4], [11, 52, 53, 54], protected=1)
    assert done.pages.tolist() == [11, 12, 13, 54]
    assert (done.duplicates, done.recovered, done.adopted) == ([(1, 3)], [], [(3, 4)])
    assert sorted(cache.cached_pages().tolist()) == [11, 12, 13, 54]


def test_a_recovery_splits_at_its_borders_and_never_replaces_a_full_page() -> None:
    """sgl-project/sglang#29352: another request may have the tree's FULL page in its row."""
    cache = PrefixCache(2, False)
    receipt = cache.lock(put(cache, [1, 2, 3, 4], [11, 12, 13, 14], [0, 0, 0, 0]).node, "a")
    done = put(cache, [1, 2, 3, 4], [51, 52, 53, 54], [0, 1, 1, 0])
    assert done.pages.tolist() == [11, 12, 13, 14]
    assert (done.recovered, done.duplicates) == ([(1, 3)], [(0, 1), (3, 4)])
    assert cache.swa_live_pages().tolist() == [12, 13] and cache.pages_recovered == 2
    assert cache.counts() == (0, 4, 0, 2) and cache.check_integrity() == []  # the lock covers what comes back
    cache.unlock(receipt)
    assert cache.counts() == (4, 0, 2, 0)
    assert cache.check_integrity() == []


def test_protected_pages_are_recovered_too() -> None:
    cache = PrefixCache(1, False)
    put(cache, [1, 2], [11, 12], [0, 0])
    done = put(cache, [1, 2], [11, 12], [0, 1], protected=2)
    assert (done.recovered, done.duplicates, done.adopted) == ([(1, 2)], [], [])


def test_protected_pages_are_never_duplicates() -> None:
    """The caller does not own them, so it must not be told to free them, whatever its row says."""
    cache = PrefixCache(1, False)
    put(cache, [1, 2], [11, 12])
    done = put(cache, [1, 2], [51, 52], protected=1)
    assert done.duplicates == [(1, 2)] and done.pages.tolist() == [11, 12]


def test_an_unlock_leaves_alone_what_was_revived_after_its_lock() -> None:
    """sgl-project/sglang#24972: `a` locked a tombstone; `b` locked it once it was live."""
    cache = PrefixCache(2, False)
    node = put(cache, [1, 2], [11, 12], [0, 0]).node
    first = cache.lock(node, "a")
    assert (node.swa_lock, cache.counts()) == (1, (0, 2, 0, 0))
    put(cache, [1, 2], [51, 52], [1, 1])
    second = cache.lock(node, "b")
    cache.unlock(first)
    assert (node.full_lock, node.swa_lock) == (1, 1)
    assert gone(cache.evict_swa(9)) == []
    cache.unlock(second)
    assert gone(cache.evict_swa(9)) == [[11, 12]]


def test_a_new_live_suffix_is_cut_so_that_a_lock_pins_one_window() -> None:
    cache = PrefixCache(2, False)
    done = put(cache, [1, 2, 3, 4, 5, 6], [11, 12, 13, 14, 15, 16], [0, 1, 1, 1, 1, 1])
    assert done.adopted == [(0, 1), (1, 4), (4, 6)]
    cache.lock(done.node, "a")
    assert cache.counts() == (0, 6, 3, 2) and cache.check_integrity() == []


def test_the_swa_lock_covers_one_window_of_whole_nodes_and_can_go_early() -> None:
    cache = PrefixCache(2, False)
    put(cache, [1, 2], [11, 12])
    put(cache, [1, 2, 3], [11, 12, 13], protected=2)
    receipt = cache.lock(put(cache, [1, 2, 3, 4], [11, 12, 13, 14], protected=3).node, "a")
    assert (receipt.swa_floor, receipt.depth) == (2, 4) and cache.counts() == (0, 4, 2, 2)
    cache.release_swa_lock(receipt)
    assert cache.counts() == (0, 4, 4, 0)
    with pytest.raises(LockError, match="no SWA lock left"):
        cache.release_swa_lock(receipt)
    cache.unlock(receipt)
    assert cache.counts() == (4, 0, 4, 0) and cache.check_integrity() == []


def test_holders_are_a_multiset() -> None:
    cache = PrefixCache(1, False)
    node = put(cache, [1], [11]).node
    receipts = [cache.lock(node, "a"), cache.lock(node, "a"), cache.lock(node, "b")]
    assert {holder: len(mine) for holder, mine in cache.holders.items()} == {"a": 2, "b": 1}
    for receipt in receipts:
        cache.unlock(receipt)
    assert cache.holders == {}
    with pytest.raises(LockError, match="unlock it once"):
        cache.unlock(receipts[0])


def test_the_tree_keeps_its_own_copy_of_the_callers_arrays() -> None:
    cache = PrefixCache(1, False)
    keys, pages = ids(1, 2), ids(11, 12)
    done = cache.insert(keys, pages, np.array([True, True]), 0)
    keys[:], pages[:], done.pages[:] = 0, 0, 0
    hit = cache.match(ids(1, 2))
    hit.pages[:] = 0
    assert cache.cached_pages().tolist() == [11, 12]


def test_without_paged_swa_every_page_is_a_tombstone() -> None:
    cache = PrefixCache(1, False, swa=False)
    put(cache, [1, 2], [11, 12])
    done = put(cache, [1, 2, 3], [51, 52, 53])
    assert (done.recovered, done.duplicates) == ([], [(0, 2)])
    assert cache.counts() == (3, 0, 0, 0) and gone(cache.evict_swa(9)) == []
    assert cache.match(ids(1, 2, 3)).swa_from == 3


def test_wrong_calls_say_what_to_do() -> None:
    cache = PrefixCache(1, False)
    node = put(cache, [1], [11]).node
    list(cache.evict_full(1))
    with pytest.raises(ValueError, match="evicted; match again"):
        cache.lock(node, "a")
    with pytest.raises(ValueError, match="2 pages are called protected and the tree holds 0"):
        put(cache, [1, 2], [11, 12], protected=2)
    with pytest.raises(ValueError, match="2 keys, 1 pages, 2 SWA flags"):
        put(cache, [1, 2], [11], [1, 1])
    with pytest.raises(ValueError, match="one integer a page"):
        cache.match(np.array([0.5]))
    with pytest.raises(ValueError, match="at least 1 page"):
        PrefixCache(0, False)
    with pytest.raises(ValueError, match="swa_gates_match=False"):
        PrefixCache(1, True, swa=False)
