"""I11 and I12 on locks, over a real prefix cache under watch: an unlock gives up what its lock took, and what is locked
is not given up. Each with a control that it flags, and a clean twin that it does not."""

import numpy as np
import pytest
import torch
from prefix_bench import ids, put
from rule_bench import PAGE, Bench

from allocator.faults.f10_unlock_of_revived import UnlockOfRevived
from allocator.faults.log import FaultLog, with_faults
from allocator.prefix_cache import PrefixCache
from stress.check.event import EventKind
from stress.probe.cache_watch import CacheWatch

KEYS = (1, 2, 3, 4, 5, 6)


def bench_and_cache(rules, acting=(), cls=PrefixCache):
    bench = Bench(rules=rules)
    cache = with_faults(cls, {"F10": UnlockOfRevived}, FaultLog(acting))(2, swa_gates_match=False)
    CacheWatch(cache, bench.watch)
    return bench, cache


def lend_and_put(bench, cache, live):
    """Six pages lent and published, `live` of them from the deep end with SWA; their slots."""
    slots = bench.lend(1, 6)
    pages = (slots[::PAGE] // PAGE).tolist()
    bench.do("checkpoint", 1, lambda: put(cache, KEYS, pages, [False] * (6 - live) + [True] * live))
    return slots


def locked(bench, cache, rid, keys=KEYS):
    return bench.do("admit", rid, lambda: cache.lock(cache.match(ids(*keys)).node, rid))


def revive_under_a_lock(bench, cache):
    """A lock on a tombstone, the tombstone comes back to life, another lock, and the first is given up."""
    lend_and_put(bench, cache, live=0)
    first = locked(bench, cache, 7)
    copy = (bench.lend(2, 6)[::PAGE] // PAGE).tolist()
    bench.do("checkpoint", 2, lambda: put(cache, KEYS, copy, [True] * 6))
    second = locked(bench, cache, 8)
    bench.do("checkpoint", 7, lambda: cache.unlock(first))
    return second


def test_i11_an_unlock_takes_the_lock_of_another():
    bench, cache = bench_and_cache(["I11"], acting=["F10"])
    revive_under_a_lock(bench, cache)
    finding = bench.only("I11")
    assert (finding.operation, finding.pool, finding.page) == (bench.number, "swa", 1)
    assert finding.message == (
        "request 7 unlocks swa of page 1, which its lock 1 never took: that takes it from one of 1 others "
        "(checkpoint of request 7) (6 such pages)"
    )


def test_i11_is_silent_where_the_lock_counts_tombstones():
    bench, cache = bench_and_cache(["I11"])
    second = revive_under_a_lock(bench, cache)
    bench.do("finish", 8, lambda: cache.unlock(second))
    bench.clean()
    locks = bench.ledger.shadow.locks
    assert not locks.held
    assert not locks.holders_in("full").any() and not locks.holders_in("swa").any()


def test_i11_splits_and_early_releases_are_no_other_locks():
    bench, cache = bench_and_cache(["I11"])
    lend_and_put(bench, cache, live=4)
    receipt = locked(bench, cache, 7)
    bench.do("admit", 8, lambda: cache.match(ids(1, 9)))
    assert cache.nodes_split
    bench.do("checkpoint", 7, lambda: cache.release_swa_lock(receipt))
    locks = bench.ledger.shadow.locks
    assert locks.holders_in("full").sum() == 6 and not locks.holders_in("swa").any()
    bench.do("finish", 7, lambda: cache.unlock(receipt))
    bench.clean()


class KeepsOne(PrefixCache):
    """An unlock that stops a node too early."""

    def unlock(self, receipt):
        super().unlock(receipt)
        node = receipt.node
        while node.parent.parent is not None:
            node = node.parent
        node.full_lock += 1


def test_i11_an_unlock_that_leaves_a_page_locked():
    bench, cache = bench_and_cache(["I11"], cls=KeepsOne)
    lend_and_put(bench, cache, live=2)
    receipt = locked(bench, cache, 7)
    bench.do("finish", 7, lambda: cache.unlock(receipt))
    finding = bench.only("I11")
    assert (finding.operation, finding.pool, finding.page) == (bench.number, "full", 1)
    assert "it stays locked" in finding.message and bench.ledger.findings == {"I11": 4}


def test_i11_no_component_is_held_by_more_than_the_whole():
    bench = Bench(rules=["I11"])
    bench.tell(EventKind.LOCK, "swa", [3], method="request 7")
    assert "which fewer hold in full" in bench.only("I11").message


@pytest.mark.parametrize("side", ["full", "swa"])
def test_i12_what_is_locked_is_not_given_up(side):
    bench, cache = bench_and_cache(["I12"])
    slots = lend_and_put(bench, cache, live=2)
    receipt = locked(bench, cache, 7)
    free = bench.allocator.free_full_segment if side == "full" else bench.allocator.free_swa_segment
    bench.do("evict", -1, lambda: free(slots[4 * PAGE :], start_pos=0))
    finding = bench.only("I12")
    assert (finding.operation, finding.pool, finding.page) == (bench.number, "full", 5)
    assert f"{side} of page 5 asked back" in finding.message and "while it is locked" in finding.message
    assert receipt.held


def test_i12_what_was_unlocked_may_go():
    bench, cache = bench_and_cache(["I12"])
    slots = lend_and_put(bench, cache, live=2)
    receipt = locked(bench, cache, 7)
    bench.do("finish", 7, lambda: cache.unlock(receipt))
    bench.do("evict", -1, lambda: bench.allocator.free_segment(torch.as_tensor(slots), start_pos=0))
    bench.clean()


def test_the_wrappers_come_off_and_what_raises_is_told():
    bench, cache = bench_and_cache(["I11"])
    lend_and_put(bench, cache, live=6)
    receipt = locked(bench, cache, 7)
    receipt.node.full_lock = 0
    with pytest.raises(ValueError, match="no FULL lock left"):
        bench.do("finish", 7, lambda: cache.unlock(receipt))
    assert bench.ledger.findings["I11"] and np.array_equal(
        bench.ledger.shadow.locks.holders_in("full"), np.zeros(65)
    )
    watch = CacheWatch(PrefixCache(2, swa_gates_match=False), bench.watch)
    watch.unwatch()
    assert "lock" not in vars(watch._cache)
