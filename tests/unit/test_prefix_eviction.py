"""Eviction order of the prefix cache, and the controls of its integrity check: each damage must be seen."""

from __future__ import annotations

import pytest
from prefix_bench import gone, ids, put

from allocator.prefix_cache import PrefixCache
from allocator.prefix_evict import COMPACT_ENTRIES_MIN


def test_full_eviction_takes_leaves_in_order_of_use_and_spares_locked_paths() -> None:
    cache = PrefixCache(1, False)
    put(cache, [1, 2], [11, 12])
    put(cache, [1, 2, 3], [11, 12, 13], protected=2)
    put(cache, [7, 8], [17, 18])
    put(cache, [9], [19])
    receipt = cache.lock(cache.match(ids(7, 8)).node, "a")
    assert gone(cache.evict_full(3)) == [[13], [12], [11]]
    assert gone(cache.evict_full(9)) == [[19]]
    cache.unlock(receipt)
    assert gone(cache.evict_full(9)) == [[18], [17]]
    assert cache.counts() == (0, 0, 0, 0) and cache.root.children == {}


def test_swa_eviction_tombstones_inner_nodes_and_takes_leaves_whole() -> None:
    cache = PrefixCache(2, False)
    put(cache, [1, 2], [11, 12])
    put(cache, [1, 2, 3, 4], [11, 12, 13, 14], protected=2)
    put(cache, [1, 2, 3, 4, 5], [11, 12, 13, 14, 15], protected=4)
    found = [(v.pages.tolist(), v.swa_live, v.component) for v in cache.evict_swa(9)]
    assert found == [([11, 12], True, "swa"), ([13, 14], True, "swa"), ([15], True, "full")]
    assert cache.counts() == (4, 0, 0, 0) and cache.check_integrity() == []


def test_a_leaf_whose_full_part_is_locked_becomes_a_tombstone() -> None:
    cache = PrefixCache(1, False)
    receipt = cache.lock(put(cache, [1], [11]).node, "a")
    assert gone(cache.evict_swa(9)) == []
    cache.release_swa_lock(receipt)
    (victim,) = cache.evict_swa(9)
    assert (victim.component, cache.counts()) == ("swa", (0, 1, 0, 0))
    cache.unlock(receipt)
    assert cache.check_integrity() == []


def test_a_use_renews_one_window_and_a_page_and_no_more() -> None:
    cache = PrefixCache(1, False)
    for end in (1, 2, 3, 4):
        put(cache, range(1, end + 1), range(11, 11 + end), protected=end - 1)
    put(cache, [9], [19])
    cache.match(ids(1, 2, 3, 4))
    # 4 and 3 were used after 9; 1 and 2 lie further ahead and are older than it.
    assert gone(cache.evict_swa(9)) == [[11], [12], [19], [13], [14]]


def test_a_split_puts_the_front_half_right_behind_the_deep_half() -> None:
    cache = PrefixCache(4, False)
    put(cache, [1, 2, 3, 4], [11, 12, 13, 14])
    put(cache, [9], [19])
    deep = cache.lock(cache.root.children[1], "a")
    assert len(cache.match(ids(1, 2, 3, 8)).pages) == 3
    cache.unlock(deep)
    cache.match(ids(9))
    assert gone(cache.evict_swa(9)) == [[14], [11, 12, 13], [19]]


def test_the_next_victim_is_chosen_after_the_last_one_was_handled() -> None:
    cache = PrefixCache(1, False)
    for first in (1, 2, 3):
        put(cache, [first], [10 + first])
    victims = cache.evict_full(2)
    assert next(victims).pages.tolist() == [11]
    cache.match(ids(2))  # used while the caller frees page 11
    assert next(victims).pages.tolist() == [13]
    assert next(victims, None) is None and cache.cached_pages().tolist() == [12]


def test_evicted_nodes_do_not_pile_up_in_a_queue_that_nobody_pops() -> None:
    cache = PrefixCache(1, False)
    for round_ in range(4 * COMPACT_ENTRIES_MIN):
        put(cache, [round_], [round_ + 1])
        assert gone(cache.evict_swa(1)) == [[round_ + 1]]
    assert len(cache.full_queue) <= COMPACT_ENTRIES_MIN


@pytest.mark.parametrize(
    ("corrupt", "complaint"),
    [
        (lambda cache, node: setattr(cache, "full_evictable", cache.full_evictable + 1), "counters"),
        (lambda cache, node: setattr(node, "full_lock", 1), "the receipts that cover it are 0 and 0"),
        (lambda cache, node: setattr(node, "swa_lock", 1), "SWA never exceeds FULL"),
        (lambda cache, node: setattr(node, "full_lock", -1), "none may be negative"),
        (lambda cache, node: setattr(node, "start", node.start + 1), "do not fit its range"),
        (lambda cache, node: setattr(node.parent, "last_use", node.last_use), "the same tick"),
        (lambda cache, node: cache.swa_recency.remove(node), "SWA live and not listed"),
        (lambda cache, node: setattr(node, "older", node), "does not point back"),
        (lambda cache, node: setattr(node, "newer", node), "does not close"),
        (
            lambda cache, node: node.parent.children.clear() or node.parent.children.update({9: node}),
            "list it",
        ),
        (lambda cache, node: node.pages.__setitem__(0, 11), "in the tree twice"),
        (lambda cache, node: cache.full_queue.pop(), "may be evicted and is not queued"),
        (lambda cache, node: setattr(node, "swa_live", False), "counters"),
    ],
)
def test_the_integrity_check_sees_each_kind_of_damage(corrupt, complaint: str) -> None:
    cache = PrefixCache(1, False)
    put(cache, [1, 2], [11, 12])
    node = put(cache, [1, 2, 3], [11, 12, 13], protected=2).node
    assert cache.check_integrity() == []
    corrupt(cache, node)
    assert any(complaint in line for line in cache.check_integrity())
