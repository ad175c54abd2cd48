"""I1 to I3, and how the ledger keeps findings and survives a broken check. Each rule has a control that it flags at
the faulty operation, and a clean twin that it does not."""

import pytest
import torch
from rule_bench import EDGES, PAGE, POOLS, Bench, loaded_and_freed, sweep

from stress.check.proof_few import Few
from stress.check.rules import RULES
from stress.check.rules.i03_returned import Returned
from stress.check.shadow import Ledger
from stress.check.state import Shadow


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
    """The free list holds a page that is on loan in the place of a free one: its length is right."""
    bench = Bench()
    slots = bench.load(1, 1)
    pool = bench.allocator.full_attn_allocator
    pool.free_pages = torch.cat((slots[:1] // PAGE, pool.free_pages[1:]))
    bench.load(2, 1)
    finding = bench.only("I2")
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
    assert Ledger(POOLS, EDGES, 0).rules_watched == ["I13", "I20", "I22"]
    every = list(dict.fromkeys(rule.id for rule in RULES))
    assert Ledger(POOLS, EDGES, 2).rules_watched == every
    alone = Ledger(POOLS[:1], (), 2).rules_watched
    assert alone == [
        *(
            "I1",
            "I2",
            "I3",
            "I6",
            "I7",
            "I9",
            "I11",
            "I12",
            "I13",
            "I14",
            "I15",
            "I16",
            "I17",
            "I18",
            "I19",
            "I20",
            "I21",
            "I22",
        )
    ]
    with pytest.raises(ValueError, match="no rule I99; choose among I1"):
        Ledger(POOLS, EDGES, 2, ["I99"])


def test_a_check_that_raises_stops_alone(monkeypatch):
    def broken(self, event, shadow, report):
        raise RuntimeError("broken check")

    monkeypatch.setattr(Returned, "check", broken)
    bench = Bench(short_cuts=False)
    slots = bench.lend(1, 2)
    bench.free(1, slots)
    bench.lend(2, 2)
    assert "rule I3 at operation 2" in bench.ledger.crashed and "broken check" in bench.ledger.crashed
    assert "I3" not in bench.ledger.rules_watched and "I1" in bench.ledger.rules_watched


def test_the_first_finding_is_the_lowest_faulty_operation():
    told = []
    bench = Bench(on_finding=told.append)
    loaded_and_freed(bench, live_pages=8)
    bench.lend(5, 1)
    bench.lend(6, 1)
    assert bench.ledger.first is told[0] and [f.rule for f in told] == ["I1", "I2"]


@pytest.mark.parametrize("short_cuts", [True, False])
def test_a_shadow_that_raises_stops_all(monkeypatch, short_cuts):
    def broken(self, event, others=()):
        raise RuntimeError("broken shadow")

    monkeypatch.setattr(*((Few, "come") if short_cuts else (Shadow, "_return")), broken)
    bench = Bench(short_cuts=short_cuts)
    slots = bench.lend(1, 2)
    bench.free(1, slots)
    assert bench.ledger.crashed.startswith("shadow, return event at operation 2")
    assert bench.ledger.rules_watched == []
    bench.lend(2, 8)
    bench.free(1, slots)
    assert bench.ledger.findings == {}
