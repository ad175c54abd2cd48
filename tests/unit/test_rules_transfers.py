"""Controls of I15 and I17: told transfers over a watched allocator; each fails when its rule is switched off."""

from __future__ import annotations

import numpy as np
import pytest
from rule_bench import EDGES, POOLS, Bench, hold

from stress.check.event import ALL_OBSERVATIONS, Cause, Event, EventKind
from stress.check.shadow import Ledger


def pages_of(slots) -> list[int]:
    return (slots.numpy()[::4] // 4).tolist()


def transfer(bench, kind, token, method, pages, pool="full", rid=1, operation="finish"):
    cause = Cause(bench.number, operation, rid, "")
    ids = np.array(pages, dtype=np.int64)
    bench.ledger.observe(Event(kind, pool, ids, None, cause, 98, method, bench.number * 1000, token))


def begin(bench, method, pages, token=7, pool="full", rid=1):
    transfer(bench, EventKind.TRANSFER_BEGIN, token, method, pages, pool, rid)


def end(bench, method, pages=(), token=7, operation="poll"):
    transfer(bench, EventKind.TRANSFER_END, token, method, list(pages), operation=operation)


def write(bench, rid, pages):
    bench.tell(EventKind.WRITTEN, "full", pages, rid=rid, operation_kind="commit")


def stored(bench, pages=2):
    """Request 1 has computed pages, and a store of them has begun."""
    slots = bench.lend(1, pages)
    write(bench, 1, pages_of(slots))
    begin(bench, "offload", pages_of(slots))
    begin(bench, "offload", pages_of(slots), pool="swa")
    return slots


def freed_and_lent(bench, slots):
    """In one operation, as an eviction makes room."""
    bench.allocator.free_segment(slots, start_pos=0)
    bench.allocator.alloc(2 * 4)


@pytest.mark.parametrize("rules", [["I15"], ["I2"]])
def test_a_page_that_a_store_still_reads_is_not_lent(rules):
    bench = Bench(rules=rules)
    slots = stored(bench)
    bench.do("extend", 2, lambda: freed_and_lent(bench, slots), "cache eviction")
    if rules == ["I2"]:
        bench.clean()
        return
    assert {finding.pool for finding in bench.ledger.kept} == {"full", "swa"}
    finding = bench.ledger.kept[0]
    assert (finding.rule, finding.operation, finding.noticed) == ("I15", bench.number, bench.number)
    assert "is lent while the offload that began" in finding.message
    assert f"gave it back in operation {bench.number}" in finding.message
    assert bench.ledger.findings == {"I15": 4} and bench.ledger.crashed == ""


def test_a_page_that_came_back_too_early_is_found_before_it_is_lent():
    bench = Bench(rules=["I15"])
    slots = stored(bench)
    bench.free(1, slots)
    finding = next(finding for finding in bench.ledger.kept if finding.pool == "full")
    assert (finding.operation, finding.noticed) == (bench.number, bench.number)
    assert "is on the free list while the offload" in finding.message
    assert [line for line in finding.history if "offload" in line] == [
        f"1 offload 7 began with full page {finding.page} (finish of request 1)"
    ]
    assert bench.ledger.findings == {"I15": 4}


def test_a_page_that_a_store_has_read_may_be_lent():
    bench = Bench(rules=["I15"])
    slots = stored(bench)
    end(bench, "done", pages_of(slots))
    bench.free(1, slots)
    bench.lend(2, 2)
    bench.clean()


def test_a_transfer_may_be_cancelled_in_the_operation_that_frees_its_pages():
    bench = Bench(rules=["I15"])
    slots = stored(bench)

    def abort():
        bench.allocator.free_segment(slots, start_pos=0)
        end(bench, "cancelled", operation="abort")

    bench.do("abort", 1, abort)
    bench.lend(2, 2)
    bench.clean()


@pytest.mark.parametrize("second", ["done", "cancelled", "failed"])
def test_a_transfer_ends_once(second):
    bench = Bench(rules=["I15"])
    slots = stored(bench)
    end(bench, "done", pages_of(slots))
    bench.clean()
    end(bench, second)
    assert f"ended a second time ({second})" in bench.only("I15").message


def test_a_ticket_that_is_under_way_does_not_begin_again():
    bench = Bench(rules=["I15"])
    slots = stored(bench)
    begin(bench, "offload", pages_of(slots))
    assert "begins again" in bench.only("I15").message


def admitted(bench, rid, pages):
    bench.number += 1
    hold(bench, rid, pages, kind="admit")


@pytest.mark.parametrize("how", ["cancelled", "failed"])
@pytest.mark.parametrize("rules", [["I17"], ["I15"]])
def test_a_hit_on_pages_whose_load_ended_without_them_is_found_where_it_ended(how, rules):
    bench = Bench(rules=rules)
    bench.ledger.limit_to(ALL_OBSERVATIONS - {"private_loads"})
    pages = pages_of(bench.load(1, 3))
    begin(bench, "load", pages)
    bench.number += 1
    end(bench, how, operation="abort")
    ended = bench.number
    bench.settle()
    admitted(bench, 2, pages)
    if rules == ["I15"]:
        bench.clean()
        return
    finding = bench.only("I17")
    assert (finding.operation, finding.noticed, finding.page) == (ended, bench.number, pages[0])
    assert "request 2 was given page" in finding.message and "abort of request 1" in finding.message


@pytest.mark.parametrize("rules", [["I17"], ["I15"]])
@pytest.mark.parametrize(("how", "came"), [("cancelled", 0), ("failed", 0), ("done", 1)])
def test_what_a_private_load_did_not_bring_is_given_back_or_in_its_requests_table(how, came, rules):
    for left in ("in a table", "given back", "kept"):
        bench = Bench(rules=rules)
        slots = bench.load(1, 3)
        pages = pages_of(slots)
        begin(bench, "load", pages)
        if left == "in a table":
            hold(bench, 1, pages, kind="admit")

        def leave(bench=bench, slots=slots, pages=pages, left=left):
            end(bench, how, pages[:came], operation="abort")
            if left == "given back":
                bench.allocator.free_full_segment(slots, start_pos=0)

        bench.do("abort", 1, leave, "release")
        if left != "kept" or rules == ["I15"]:
            bench.clean()
            continue
        finding = bench.only("I17")
        assert (finding.operation, finding.page) == (bench.number, pages[came])
        assert "is on loan in no request's table, and its load" in finding.message


def test_a_load_that_lands_makes_its_pages_matchable():
    bench = Bench(rules=["I17"])
    pages = pages_of(bench.load(1, 3))
    begin(bench, "load", pages)
    end(bench, "done", pages)
    admitted(bench, 2, pages)
    write(bench, 2, [])
    bench.clean()


def test_a_short_load_that_is_taken_for_a_whole_one_is_found_when_it_is_read():
    bench = Bench(rules=["I17"])
    pages = pages_of(bench.load(1, 3))
    begin(bench, "load", pages)
    hold(bench, 1, pages, kind="admit")
    bench.clean()
    bench.number += 1
    end(bench, "done", pages[:1])
    ended = bench.number
    bench.settle()
    bench.number += 1
    write(bench, 1, [])
    finding = bench.only("I17")
    assert (finding.operation, finding.page) == (ended, pages[1]) and "2 such pages" in finding.message


def test_a_page_forgets_what_it_held_when_it_is_lent_again():
    bench = Bench(rules=["I17"])
    slots = bench.lend(1, 2)
    write(bench, 1, pages_of(slots))
    bench.free(1, slots)
    pages = pages_of(bench.lend(2, 2))
    begin(bench, "offload", pages)
    assert "offload 7 of request 1 stores page" in bench.only("I17").message


@pytest.mark.parametrize("method", ["load", "offload"])
def test_a_transfer_of_the_swa_part_needs_one(method):
    bench = Bench(rules=["I17"])
    pages = pages_of(bench.load(1, 3))
    write(bench, 1, pages)
    begin(bench, method, pages, pool="swa")
    assert f"{method} 7 moves the swa part of page" in bench.only("I17").message


def test_without_transfers_in_sight_neither_is_watched():
    seen = {"lends", "returns", "tables", "writes", "whole_prefix"}
    assert not {"I15", "I17"} & set(Ledger(POOLS, EDGES, 2, observes=seen).rules_watched)
    assert {"I15", "I17"} <= set(Ledger(POOLS, EDGES, 2, observes=seen | {"transfers"}).rules_watched)
