"""I4 to I8, the rules of the mapping and of free groups: a control and a clean twin each."""

import torch
from rule_bench import FULL, PAGE, SWA, Bench

from allocator.hybrid_swa import HybridSWAAllocator
from stress.check.event import EventKind


def test_i4_a_stale_entry_under_an_allocation_that_skips_the_window():
    bench = Bench()
    bench.allocator.full_to_swa_index_mapping[PAGE : 2 * PAGE] = torch.arange(3 * PAGE, 4 * PAGE)
    bench.load(1, 2)
    finding = next(f for f in bench.ledger.kept if f.rule == "I4")
    assert (finding.operation, finding.pool, finding.page) == (1, "full", 1)
    assert "leaves swa page 3 at full page 1, must be no peer" in finding.message


def test_i4_a_free_that_does_not_clear():
    class KeepsEntries(HybridSWAAllocator):
        def _clear_peers(self, indices, full_pages):
            return None

    bench = Bench(KeepsEntries(FULL * PAGE, SWA * PAGE, PAGE), rules=["I4"])
    slots = bench.lend(1, 2)
    bench.do("evict_windows", 1, lambda: bench.allocator.free_swa_segment(slots, start_pos=0))
    finding = bench.only("I4")
    assert (finding.operation, finding.page) == (2, 1)
    assert bench.ledger.findings == {"I4": 2}


def test_i4_is_silent_for_loads_recovery_and_windows():
    bench = Bench(release="filter-per-call")
    cached, own = bench.load(1, 2), bench.lend(2, 2)
    allocator = bench.allocator

    def recover():
        peers = allocator.translate_loc_from_full_to_swa(own)
        allocator.clear_full_to_swa_mapping(own)
        allocator.set_full_to_swa_mapping(cached, peers)
        allocator.free_full_segment(own, start_pos=0)

    bench.do("checkpoint", 2, recover, "recover")
    bench.do("evict_windows", 1, lambda: allocator.free_swa_segment(cached, start_pos=0), "window")
    bench.free(1, cached)
    bench.clean()


def test_i5_two_source_pages_for_one_target_page():
    bench = Bench(rules=["I5"])
    own, other = bench.lend(1, 1), bench.load(2, 1)
    peers = bench.allocator.translate_loc_from_full_to_swa(own)
    bench.do("checkpoint", 2, lambda: bench.allocator.set_full_to_swa_mapping(other, peers))
    finding = bench.only("I5")
    assert (finding.operation, finding.pool, finding.page) == (3, "swa", 1)
    assert "full pages 1 and 2 both map to page 1" in finding.message


def test_i5_allows_writing_before_clearing_within_an_operation():
    bench = Bench()
    own, other = bench.lend(1, 1), bench.load(2, 1)
    peers = bench.allocator.translate_loc_from_full_to_swa(own)

    def move():
        bench.allocator.set_full_to_swa_mapping(other, peers)
        bench.allocator.clear_full_to_swa_mapping(own)

    bench.do("checkpoint", 2, move, "recover")
    bench.clean()


def test_i5_a_released_page_that_is_still_mapped():
    bench = Bench(rules=["I5"])
    bench.lend(1, 1)
    page = torch.tensor([1])
    bench.do("abort", 1, lambda: bench.allocator.swa_attn_allocator.free_page_ids(page))
    finding = bench.only("I5")
    assert (finding.operation, finding.page) == (2, 1)


def test_i6_a_page_whose_source_was_given_another_one_in_the_same_write():
    bench = Bench()
    bench.tell(EventKind.LEND, "full", [5], rid=1)
    bench.tell(EventKind.LEND, "swa", [6, 7], rid=1)
    bench.tell(EventKind.BIND, "swa", [5, 5], [6, 7], rid=1)
    bench.settle()
    finding = bench.only("I6")
    assert (finding.pool, finding.page, bench.ledger.findings) == ("swa", 6, {"I6": 1})
    assert "no full page maps to it" in finding.message


def test_i6_a_source_page_freed_while_its_peer_is_live():
    bench = Bench()
    slots = bench.lend(1, 2)
    bench.do("finish", 1, lambda: bench.allocator.free_full_segment(slots, start_pos=0))
    finding = bench.only("I6")
    assert (finding.operation, finding.pool, finding.page) == (2, "swa", 1)
    assert bench.ledger.findings == {"I6": 2}
    assert finding.history[0] == "1 lent swa page 1 to request 1 (prompt)"


def test_i6_a_live_peer_that_is_forgotten():
    bench = Bench()
    slots = bench.lend(1, 2)
    bench.do("checkpoint", 1, lambda: bench.allocator.clear_full_to_swa_mapping(slots[:PAGE]))
    assert bench.only("I6").operation == 2
    bench.do("poll", -1, lambda: None)
    assert bench.ledger.findings == {"I6": 1}


def test_i6_is_silent_while_a_group_is_pending_and_in_either_order():
    bench = Bench()
    slots = bench.lend(1, 2)
    bench.do("results_begin", -1, bench.allocator.free_group_begin)

    def full_first():
        bench.allocator.free_full_segment(slots, start_pos=0)
        bench.allocator.free_swa_segment(slots, start_pos=0)

    bench.do("finish", 1, full_first)
    bench.do("results_end", -1, bench.allocator.free_group_end)
    slots = bench.lend(2, 2)
    bench.do("finish", 2, full_first)
    bench.clean()


class ResolvesAtFlush(HybridSWAAllocator):
    """sglang#36135: in a group the FULL slots are kept, and their peers read at the flush."""

    waiting = ()

    def free_swa(self, indices):
        if self.is_not_in_free_group:
            return super().free_swa(indices)
        self.waiting = (*self.waiting, indices)

    def _flush_group(self):
        waiting, self.waiting = self.waiting, ()
        super()._flush_group()
        for indices in waiting:
            super().free_swa(indices)


def rebound_in_a_group(bench, rebind):
    allocator = bench.allocator
    slots = bench.lend(1, 1)
    spare = bench.do("extend", 2, lambda: allocator.swa_attn_allocator.alloc(PAGE)) if rebind else None
    bench.do("results_begin", -1, allocator.free_group_begin)
    bench.do("checkpoint", 1, lambda: allocator.free_swa(slots))
    if rebind:
        bench.do("extend", 1, lambda: allocator.set_full_to_swa_mapping(slots, spare))
    bench.do("results_end", -1, allocator.free_group_end)


def test_i7_a_free_resolved_at_the_flush():
    bench = Bench(ResolvesAtFlush(FULL * PAGE, SWA * PAGE, PAGE), rules=["I1", "I2", "I3", "I7"])
    rebound_in_a_group(bench, rebind=True)
    finding = bench.only("I7")
    assert (finding.operation, finding.noticed, finding.pool, finding.page) == (4, 6, "swa", 1)
    assert "page 1 asked back by free_swa (checkpoint of request 1) did not come" in finding.message
    assert "page 2 came back though nobody asked for it" in finding.message


def test_i7_lets_a_late_clear_be_that_harms_nobody():
    bench = Bench(ResolvesAtFlush(FULL * PAGE, SWA * PAGE, PAGE))
    rebound_in_a_group(bench, rebind=False)
    bench.clean()


def test_i7_a_group_inside_a_group():
    class Nests(HybridSWAAllocator):
        def free_group_begin(self):
            self.full_attn_allocator._close_group()
            self._close_group()
            super().free_group_begin()

    bench = Bench(Nests(FULL * PAGE, SWA * PAGE, PAGE), rules=["I7"])
    slots = bench.lend(1, 2)
    bench.do("results_begin", -1, bench.allocator.free_group_begin)
    bench.do("finish", 1, lambda: bench.allocator.free_segment(slots, start_pos=0))
    bench.do("abort", 2, bench.allocator.free_group_begin)
    finding = bench.only("I7")
    assert finding.operation == 4 and "opened a group inside a group" in finding.message
    bench.do("results_end", -1, bench.allocator.free_group_end)
    # Two nested begins, one a pool, and two pages lost in each.
    assert bench.ledger.findings == {"I7": 6}


def test_i7_a_group_left_open():
    bench = Bench(rules=["I7"])
    bench.do("results_begin", -1, bench.allocator.free_group_begin)
    bench.tell(EventKind.LEFTOVER, "full", [0, 0, 0, 0, 0])
    assert bench.only("I7").message == "a free group is still open after the drain"


def test_i8_one_token_cleared():
    class ClearsNamedTokens(HybridSWAAllocator):
        def _clear_peers(self, indices, full_pages):
            self.full_to_swa_index_mapping[indices] = 0

    bench = Bench(ClearsNamedTokens(FULL * PAGE, SWA * PAGE, PAGE), rules=["I8"])
    slots = bench.lend(1, 2)
    bench.do("checkpoint", 1, lambda: bench.allocator.free_swa(slots[:1]))
    finding = bench.only("I8")
    assert (finding.operation, finding.pool, finding.page) == (2, "full", 1)


def test_i8_one_token_cleared_inside_a_group():
    """The page's first entry is gone: what is left of it will not be cleared at the flush either."""

    class ClearsNamedTokens(HybridSWAAllocator):
        def _clear_peers(self, indices, full_pages):
            self.full_to_swa_index_mapping[full_pages * self.page_size] = 0

    bench = Bench(ClearsNamedTokens(FULL * PAGE, SWA * PAGE, PAGE), rules=["I8"])
    slots = bench.lend(1, 2)
    bench.do("results_begin", -1, bench.allocator.free_group_begin)
    bench.do("checkpoint", 1, lambda: bench.allocator.free_swa_segment(slots, start_pos=0))
    finding = bench.only("I8")
    assert (finding.operation, finding.pool, finding.page) == (3, "full", 1)


def test_i8_one_token_cleared_of_a_page_that_is_not_full():
    class ClearsNamedTokens(HybridSWAAllocator):
        def _clear_peers(self, indices, full_pages):
            self.full_to_swa_index_mapping[full_pages * self.page_size] = 0

    bench = Bench(ClearsNamedTokens(FULL * PAGE, SWA * PAGE, PAGE), rules=["I8"])
    lens = lambda n: torch.tensor([n])  # noqa: E731
    args = (lens(0), lens(0), lens(PAGE - 1), lens(PAGE - 1), lens(-1), PAGE - 1)
    slots = bench.do("extend", 1, lambda: bench.allocator.alloc_extend(*args))
    bench.do("abort", 1, lambda: bench.allocator.free_swa_segment(slots, start_pos=0))
    finding = bench.only("I8")
    assert (finding.operation, finding.pool, finding.page) == (2, "full", 1)


def test_i8_allows_a_page_that_is_not_full_yet():
    bench = Bench(level=3)
    lens = lambda *n: torch.tensor(n)  # noqa: E731

    def extend(lo, hi, last):
        args = (lens(lo), lens(lo), lens(hi), lens(hi), lens(last), hi - lo)
        return bench.do("extend", 1, lambda: bench.allocator.alloc_extend(*args))

    first = extend(0, PAGE + 2, -1)
    extend(PAGE + 2, 3 * PAGE, int(first[-1]))
    bench.clean()
