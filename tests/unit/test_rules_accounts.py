"""I6, I12, I13 and I20, the rules of tables, counts and the end of a run: a control and a clean twin each."""

import torch
from rule_bench import EDGES, FULL, PAGE, POOLS, SWA, Bench, accounts, hold, loaded_and_freed

from stress.check.all_counts import AllCounts
from stress.check.event import Cause, EventKind
from stress.check.rules.i06_private_pages import PrivatePages
from stress.check.shadow import Ledger


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


def test_i13_a_counter_that_drifts_in_an_admission_that_evicts_for_its_load():
    bench = Bench(rules=["I13"])
    slots = bench.lend(1, 3)
    accounts(bench, "extend", 1, 3, 0)
    bench.do("admit", 2, lambda: bench.allocator.free_segment(slots[:PAGE], start_pos=0), "cache eviction")
    bench.number -= 1
    bench.load(2, 1)
    hold(bench, 2, [1], "admit")
    accounts(bench, "admit", 2, 1, 0)  # two are left
    finding = bench.only("I13")
    assert finding.operation == 2 and "1 pages more on loan" in finding.message


def test_i13_an_admission_may_lend_for_its_load_and_evict():
    bench = Bench()
    slots = bench.lend(1, 3)
    accounts(bench, "extend", 1, 3, 0)
    bench.do("admit", 2, lambda: bench.allocator.free_segment(slots[:PAGE], start_pos=0), "cache eviction")
    bench.number -= 1
    bench.load(2, 1)
    hold(bench, 2, [1], "admit")
    accounts(bench, "admit", 2, 2, 0)
    bench.clean()


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


def test_i20_names_what_is_kept_of_a_request_that_has_ended():
    bench = Bench(rules=["I20"])
    bench.lend(1, 2)
    hold(bench, 1, [1, 2], "admit")
    bench.tell(EventKind.ENDED, "full", [1, 0, 1], rid=1, operation_kind="abort", method="end")
    finding = bench.only("I20")
    assert (finding.operation, finding.page) == (1, 1)
    assert finding.message == (
        "left of request 1 after abort of request 1: 1 lock, 1 row, and 2 pages in its table, first 1"
    )


def test_i20_is_silent_for_a_request_that_left_nothing_or_whose_end_raised():
    bench = Bench()
    bench.tell(EventKind.ENDED, "full", [0, 0, 0], rid=1, operation_kind="abort", method="end")
    bench.tell(EventKind.ENDED, "full", [1, 1, 1], rid=2, operation_kind="finish", method="raised")
    bench.clean()


def test_counts_that_a_rule_fails_at_stop_the_rule_and_not_the_run(monkeypatch):
    def broken(*_):
        raise ZeroDivisionError("broken check")

    monkeypatch.setattr(PrivatePages, "takes_counts", broken)
    ledger = Ledger(POOLS, EDGES)
    told = {"full": (FULL, FULL, 0, 0), "swa": (SWA, SWA, 0, 0)}
    ledger.observe(AllCounts(Cause(1, "reserve", -1, ""), 1, 0, told, {}))
    assert "rule I6" in ledger.crashed and "broken check" in ledger.crashed
    assert ledger.findings == {} and "I13" in ledger.rules_watched


def test_counts_that_are_off_are_not_taken_without_their_event():
    for full, swa, found in (
        ((FULL, FULL, 0, 0), (SWA, SWA, 0, 0), {}),
        ((FULL, FULL, 0, 0), (SWA, SWA - 1, 0, 0), {"I13": 1}),
        ((FULL, FULL, 1, 0), (SWA, SWA, 0, 0), {"I13": 2}),  # one cached page too many, by either account
    ):
        ledger = Ledger(POOLS, EDGES, rules=["I13"])
        ledger.observe(AllCounts(Cause(1, "reserve", -1, ""), 1, 0, {"full": full, "swa": swa}, {}))
        assert ledger.findings == found
