"""Each rule has a control, a seeded fault that it flags at the faulty operation, and a clean twin that it does not."""

import numpy as np
import pytest
import torch

from allocator.hybrid_swa import HybridSWAAllocator
from stress.check.event import Cause, EdgeShape, Event, EventKind, PoolShape
from stress.check.rules import RULES
from stress.check.shadow import Ledger
from stress.probe import watch

PAGE = 4
FULL, SWA = 64, 16
POOLS = (PoolShape("full", FULL, PAGE, 0), PoolShape("swa", SWA, PAGE, 0))
EDGES = (EdgeShape("full", "swa"),)


class Bench:
    """An allocator under watch, and operations numbered from 1."""

    def __init__(self, allocator=None, level=2, rules=None, release="unpatched"):
        self.allocator = allocator or HybridSWAAllocator(FULL * PAGE, SWA * PAGE, PAGE, release=release)
        self.ledger = Ledger(POOLS, EDGES, level, rules)
        self.watch = watch(self.allocator, POOLS, EDGES, self.ledger)
        self.number = 0

    def do(self, kind, rid, call, step=""):
        self.number += 1
        self.watch.step = lambda: step
        self.watch.begin(Cause(self.number, kind, rid, ""), self.number * 1000)
        try:
            return call()
        finally:
            self.watch.end()

    def lend(self, rid, pages):
        return self.do("extend", rid, lambda: self.allocator.alloc(pages * PAGE), "prompt")

    def load(self, rid, pages):
        return self.do(
            "admit", rid, lambda: self.allocator.full_attn_allocator.alloc(pages * PAGE), "linker load"
        )

    def free(self, rid, slots):
        return self.do("finish", rid, lambda: self.allocator.free_segment(slots, start_pos=0), "release")

    def tell(self, kind, pool, pages, peers=None, rid=-1, method="told", operation_kind="extend"):
        """An event that the allocator alone does not make."""
        ids = np.array(pages, dtype=np.int64)
        peers = None if peers is None else np.array(peers, dtype=np.int64)
        cause = Cause(self.number, operation_kind, rid, "")
        self.ledger.observe(Event(kind, pool, ids, peers, cause, 99, method, self.number * 1000))

    def settle(self):
        self.ledger.settle(self.number, self.number * 1000)

    def only(self, rule):
        """The one finding kept; there must be no other rule."""
        assert self.ledger.crashed == ""
        assert list(self.ledger.findings) == [rule], self.ledger.findings
        return self.ledger.kept[0]

    def clean(self):
        assert self.ledger.crashed == ""
        assert self.ledger.findings == {}, self.ledger.kept


def loaded_and_freed(bench, live_pages):
    """A prefix of 4 pages without peers is loaded, and its window released in a result group."""
    if live_pages:
        bench.lend(1, live_pages)
    slots = bench.load(4, 4)
    bench.do("results_begin", -1, bench.allocator.free_group_begin)
    release = lambda: bench.allocator.free_swa_segment(slots, start_pos=0)  # noqa: E731
    bench.do("checkpoint", 4, release, "window")
    checkpoint = bench.number
    bench.do("results_end", -1, bench.allocator.free_group_end)
    return checkpoint


def test_i1_names_the_operation_that_read_no_peer_although_nothing_asserts():
    bench = Bench()
    checkpoint = loaded_and_freed(bench, live_pages=8)
    finding = bench.only("I1")
    assert bench.ledger.findings == {"I1": 4}
    assert (finding.operation, finding.noticed, finding.pool, finding.page) == (
        checkpoint,
        checkpoint + 1,
        "swa",
        0,
    )
    assert finding.virtual_us == checkpoint * 1000
    assert finding.message.startswith(
        "page 0 returned 4 times at the flush of operation 5 (free_swa_segment, checkpoint of request 4 read no peer"
    )
    assert finding.history == [
        "2 lent full page 9 to request 4 (linker load)",
        "4 free_swa_segment read no peer (checkpoint of request 4)",
        "5 returned swa page 0 (results_end)",
    ]


def test_i1_then_i2_when_padding_is_lent_twice():
    bench = Bench()
    loaded_and_freed(bench, live_pages=8)
    bench.lend(5, 1)
    assert bench.ledger.findings == {"I1": 5}
    bench.lend(6, 1)
    assert bench.ledger.findings == {"I1": 6, "I2": 1}
    second = bench.ledger.kept[1]
    assert (second.rule, second.page, second.operation) == ("I2", 0, bench.number)
    assert "request 6" in second.message and "on loan to request 5 since operation 6" in second.message
    assert second.history[0] == "2 lent full page 9 to request 4 (linker load)"
    assert bench.ledger.first.rule == "I1"


def test_i1_is_seen_when_the_target_asserts():
    bench = Bench()
    with pytest.raises(AssertionError):
        loaded_and_freed(bench, live_pages=0)
    assert bench.only("I1").operation == 3


@pytest.mark.parametrize("release", ["filter-per-call", "filter-per-group"])
@pytest.mark.parametrize("live_pages", [0, 8])
def test_i1_is_silent_on_a_patched_target(release, live_pages):
    bench = Bench(release=release)
    loaded_and_freed(bench, live_pages)
    bench.lend(5, 2)
    bench.clean()


def test_i2_names_both_owners():
    bench = Bench()
    slots = bench.lend(1, 1)
    pool = bench.allocator.full_attn_allocator
    pool.free_pages = torch.cat((slots[:1] // PAGE, pool.free_pages))
    bench.load(2, 1)
    finding = next(f for f in bench.ledger.kept if f.rule == "I2")
    assert (finding.operation, finding.pool, finding.page) == (2, "full", 1)
    assert (
        "lent to request 2" in finding.message and "on loan to request 1 since operation 1" in finding.message
    )


def test_i2_is_silent_when_pages_are_reused():
    bench = Bench()
    for rid in range(1, 6):
        bench.free(rid, bench.lend(rid, 3))
    bench.clean()


def test_i3_a_page_freed_twice():
    bench = Bench(rules=["I1", "I2", "I3"])
    slots = bench.lend(1, 2)
    bench.lend(2, 2)
    bench.free(1, slots)
    bench.do("abort", 1, lambda: bench.allocator.free_full_segment(slots, start_pos=0))
    finding = bench.only("I3")
    assert (finding.operation, finding.pool, finding.page) == (4, "full", 1)
    assert bench.ledger.findings == {"I3": 2}
    assert "abort of request 1" in finding.message


def test_i3_counts_a_page_that_comes_twice_in_one_call():
    bench = Bench(rules=["I3"])
    slots = bench.lend(1, 2)
    bench.lend(2, 2)
    twice = torch.cat((slots[:1], slots[:1])) // PAGE
    bench.do("abort", 1, lambda: bench.allocator.full_attn_allocator.free_page_ids(twice))
    assert bench.only("I3").page == 1
    assert bench.ledger.findings == {"I3": 1}


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


def test_i8_allows_a_page_that_is_not_full_yet():
    bench = Bench(level=3)
    lens = lambda *n: torch.tensor(n)  # noqa: E731

    def extend(lo, hi, last):
        args = (lens(lo), lens(lo), lens(hi), lens(hi), lens(last), hi - lo)
        return bench.do("extend", 1, lambda: bench.allocator.alloc_extend(*args))

    first = extend(0, PAGE + 2, -1)
    extend(PAGE + 2, 3 * PAGE, int(first[-1]))
    bench.clean()


def hold(bench, rid, pages, kind="extend"):
    bench.tell(EventKind.HOLD, "full", pages, rid=rid, method="", operation_kind=kind)
    bench.settle()


def test_i12_a_page_of_another_request_is_given_up():
    bench = Bench(rules=["I12"])
    slots = bench.lend(1, 2)
    hold(bench, 1, [1, 2])
    hold(bench, 2, [1])
    bench.do("finish", 2, lambda: bench.allocator.free_segment(slots[:PAGE], start_pos=0))
    finding = bench.only("I12")
    assert (finding.operation, finding.pool, finding.page) == (2, "full", 1)
    assert "request 1, 2 names it" in finding.message


def test_i12_a_request_may_give_up_its_own():
    bench = Bench()
    slots = bench.lend(1, 2)
    hold(bench, 1, [1, 2])
    bench.number += 1
    bench.watch.begin(Cause(2, "finish", 1, ""), 2000)
    bench.allocator.free_segment(slots, start_pos=0)
    hold(bench, 1, [], "finish")
    bench.clean()


def test_i12_a_table_names_a_page_that_is_gone():
    bench = Bench(rules=["I12"])
    slots = bench.lend(1, 2)
    hold(bench, 1, [1, 2])
    bench.do("finish", 1, lambda: bench.allocator.free_segment(slots, start_pos=0))
    assert bench.ledger.findings == {"I12": 2}
    hold(bench, 2, [2])
    assert bench.ledger.findings == {"I12": 3}
    assert bench.ledger.kept[0].operation == 2


def test_i12_a_live_page_of_another_is_rebound():
    bench = Bench(rules=["I12"])
    bench.lend(1, 1)
    hold(bench, 1, [1])
    other = bench.lend(2, 1)
    peers = bench.allocator.translate_loc_from_full_to_swa(other)
    slots = torch.arange(PAGE, 2 * PAGE)
    bench.do("checkpoint", 2, lambda: bench.allocator.set_full_to_swa_mapping(slots, peers))
    finding = bench.only("I12")
    assert finding.operation == 3 and "rebound" in finding.message


def test_i13_reports_a_change_once():
    bench = Bench(rules=["I13"])
    bench.lend(1, 2)
    pool = bench.allocator.full_attn_allocator
    pool.free_pages = pool.free_pages[1:]
    for _ in range(3):
        bench.do("poll", -1, lambda: None)
    finding = bench.only("I13")
    assert bench.ledger.findings == {"I13": 1}
    assert finding.operation == 2 and finding.message.startswith("61 pages free, 62 expected")


def test_i13_knows_what_other_rules_have_reported():
    bench = Bench(rules=["I1", "I13"])
    loaded_and_freed(bench, live_pages=8)
    bench.lend(5, 2)
    assert bench.only("I1").rule == "I1"


def accounts(bench, kind, rid, evictable, protected, method="end"):
    pages = [FULL, bench.allocator.full_available_size() // PAGE, evictable, protected]
    bench.tell(EventKind.COUNTS, "full", pages, rid=rid, operation_kind=kind, method=method)
    bench.settle()


def test_i6_a_request_that_has_ended_owns_nothing():
    """A draft reserve that is recorded short: its last page is never given back (sglang#31616)."""
    bench = Bench(rules=["I6"])
    slots = bench.lend(1, 3)
    hold(bench, 1, [1, 2, 3])
    accounts(bench, "extend", 1, 0, 0)
    bench.do("finish", 1, lambda: bench.allocator.free_segment(slots[: 2 * PAGE], start_pos=0))
    hold(bench, 1, [], "finish")
    accounts(bench, "finish", 1, 0, 0)
    finding = bench.only("I6")
    assert (finding.operation, finding.pool, finding.page) == (2, "full", 3)
    assert "1 pages of request 1 stay on loan after finish of request 1" in finding.message


def test_private_pages_may_go_to_the_cache():
    bench = Bench()
    slots = bench.lend(1, 3)
    hold(bench, 1, [1, 2, 3])
    accounts(bench, "extend", 1, 0, 0)
    bench.number += 1
    accounts(bench, "checkpoint", 1, 0, 2)
    bench.number += 1
    bench.watch.begin(Cause(3, "finish", 1, ""), 3000)
    bench.allocator.free_segment(slots[2 * PAGE :], start_pos=2 * PAGE)
    hold(bench, 1, [], "finish")
    accounts(bench, "finish", 1, 2, 0)
    bench.clean()


def test_i13_a_counter_that_drifts():
    bench = Bench(rules=["I13"])
    bench.lend(1, 3)
    hold(bench, 1, [1, 2, 3])
    accounts(bench, "extend", 1, 0, 0)
    bench.number += 1
    accounts(bench, "evict", -1, 0, 2)
    finding = bench.only("I13")
    assert finding.operation == 2 and "2 pages more accounted for than on loan" in finding.message


def test_i13_an_allocation_that_failed_half_way():
    """FULL pages are taken, the SWA pool is short, and nothing is rolled back (kvcached#364)."""
    bench = Bench(rules=["I13"])
    accounts(bench, "poll", -1, 0, 0)
    bench.load(1, 3)
    accounts(bench, "extend", 1, 0, 0)
    finding = bench.only("I13")
    assert finding.operation == 1 and "3 pages more on loan than tables and cache" in finding.message


def test_i13_adds_up_the_terms_in_a_sweep():
    for protected, expected in ((2, {}), (1, {"I13": 1})):
        bench = Bench(rules=["I13"])
        bench.lend(1, 3)
        hold(bench, 1, [1, 2, 3])
        bench.tell(EventKind.CACHED, "full", [1, 2], method="sweep")
        accounts(bench, "poll", -1, 0, protected, "sweep")
        assert bench.ledger.findings == expected


def test_i20_names_what_is_left():
    bench = Bench(rules=["I20"])
    bench.lend(1, 2)
    hold(bench, 1, [1, 2])
    bench.tell(EventKind.LEFTOVER, "full", [1, 0, 0, 0, 1])
    messages = [f.message for f in bench.ledger.kept]
    assert messages == ["2 pages on loan after the drain, first 1"] * 2
    # 2 FULL pages, 2 SWA pages, a table, a lock and a request.
    assert bench.only("I20") and bench.ledger.findings == {"I20": 7}


def test_i20_is_silent_when_all_is_back():
    bench = Bench()
    bench.free(1, bench.lend(1, 2))
    bench.tell(EventKind.LEFTOVER, "full", [0, 0, 0, 0, 0])
    bench.clean()


def sweep(bench):
    for name, pool in (
        ("full", bench.allocator.full_attn_allocator),
        ("swa", bench.allocator.swa_attn_allocator),
    ):
        bench.tell(EventKind.FREE_LIST, name, pool.get_all_free_pages().tolist(), method="sweep")
    pages = np.arange(1, FULL + 1)
    peers = bench.allocator.full_to_swa_index_mapping.numpy()[pages * PAGE] // PAGE
    bench.tell(EventKind.MAP, "swa", pages, peers, method="sweep")
    bench.settle()


def test_a_sweep_finds_writes_that_no_method_made_and_reports_them_once():
    bench = Bench(rules=["I1", "I3", "I4"])
    bench.lend(1, 3)
    sweep(bench)
    bench.clean()
    bench.number += 1
    pool = bench.allocator.swa_attn_allocator
    pool.free_pages = torch.cat((torch.tensor([0, 0, 2, 9]), pool.free_pages))
    bench.allocator.full_to_swa_index_mapping[3 * PAGE] = 0
    sweep(bench)
    sweep(bench)
    assert bench.ledger.findings == {"I1": 2, "I3": 2, "I4": 1}
    assert all(f.operation == 2 and "sweep" in f.message for f in bench.ledger.kept)


def test_a_sweep_is_silent_about_what_was_reported():
    bench = Bench()
    loaded_and_freed(bench, live_pages=8)
    sweep(bench)
    assert bench.only("I1") and bench.ledger.findings == {"I1": 4}


def test_rules_that_cannot_be_watched_are_not_listed():
    ledger = Ledger(POOLS, EDGES, 2, observes={"lends", "returns"})
    assert ledger.rules_watched == ["I1", "I2", "I3"]
    assert Ledger(POOLS, EDGES, 0).rules_watched == ["I13", "I20"]
    every = list(dict.fromkeys(rule.id for rule in RULES))
    assert Ledger(POOLS, EDGES, 2).rules_watched == every
    with pytest.raises(ValueError, match="no rule I99; choose among I1"):
        Ledger(POOLS, EDGES, 2, ["I99"])


def test_a_check_that_raises_stops_alone():
    bench = Bench()

    def broken(event, shadow, report):
        raise RuntimeError("broken check")

    rule = next(rule for rule in bench.ledger._rules if rule.id == "I3")
    rule.check = broken
    slots = bench.lend(1, 2)
    bench.free(1, slots)
    bench.lend(2, 2)
    assert "rule I3 at operation 2" in bench.ledger.crashed and "broken check" in bench.ledger.crashed
    assert "I3" not in bench.ledger.rules_watched and "I1" in bench.ledger.rules_watched


def test_the_first_finding_is_the_lowest_faulty_operation():
    told = []
    bench = Bench()
    bench.ledger.on_finding = told.append
    loaded_and_freed(bench, live_pages=8)
    bench.lend(5, 1)
    bench.lend(6, 1)
    assert bench.ledger.first is told[0] and [f.rule for f in told] == ["I1", "I2"]
