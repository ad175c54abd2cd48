"""I9 and I10: what a forward pass reads of its window, and what the cache calls live. Each with a control that it flags
at the faulty operation, and a clean twin that it does not."""

import torch
from rule_bench import PAGE, Bench, hold

from stress.check.event import EventKind


def given(bench, rid=1, pages=4):
    """A request with pages and peers, known to the ledger; its slots."""
    slots = bench.lend(rid, pages)
    hold(bench, rid, (slots[::PAGE] // PAGE).tolist())
    return slots


def read(bench, slots, first=0, rid=1, pool="swa"):
    bench.number += 1
    pages = (slots[first * PAGE :: PAGE] // PAGE).tolist()
    cause = {"rid": rid, "operation_kind": "commit"}
    bench.tell(EventKind.READ, pool, pages, token=first, **cause)
    bench.settle()


def test_i9_blames_the_operation_that_took_the_peer():
    bench = Bench(rules=["I9"])
    slots = given(bench)
    bench.lend(2, 2)
    bench.do(
        "evict_windows", 1, lambda: bench.allocator.free_swa_segment(slots[: 2 * PAGE], start_pos=0), "window"
    )
    read(bench, slots, first=2)
    bench.clean()
    read(bench, slots, first=1)
    finding = bench.only("I9")
    assert (finding.operation, finding.noticed, finding.pool, finding.page) == (3, 5, "full", 2)
    assert finding.message == (
        "request 1 reads page 2 in its window, which has no swa page since operation 3 "
        "(evict_windows of request 1, window)"
    )
    read(bench, slots, first=1)
    assert bench.ledger.findings == {"I9": 1}


def test_i9_a_page_that_was_lent_again_is_somebody_elses():
    bench = Bench(rules=["I9"])
    slots = given(bench)
    bench.free(9, slots[:PAGE])
    while 1 not in (bench.lend(2, 1) // PAGE).tolist():
        pass
    read(bench, slots)
    finding = bench.only("I9")
    assert (finding.operation, finding.page) == (3, 1)
    assert "lent again in operation 3 (extend of request 2" in finding.message


def test_i9_of_a_ring_asks_no_peer():
    bench = Bench(rules=["I9"])
    slots = bench.load(1, 2)
    hold(bench, 1, (slots[::PAGE] // PAGE).tolist())
    read(bench, slots, pool="full")
    bench.clean()
    read(bench, slots, pool="swa")
    assert bench.ledger.findings == {"I9": 2}


def test_i9_a_peer_that_is_another_pages():
    bench = Bench(rules=["I9"])
    slots = given(bench)
    other = given(bench, rid=2, pages=1)
    peer = bench.allocator.translate_loc_from_full_to_swa(slots[:PAGE])
    bench.do("checkpoint", 2, lambda: bench.allocator.set_full_to_swa_mapping(other, peer))
    read(bench, slots)
    assert bench.only("I9").page == int(slots[0]) // PAGE


def live(bench, slots, method="publish"):
    pages = (slots[::PAGE] // PAGE).tolist()
    bench.tell(EventKind.LIVE, "swa", pages, rid=1, method=method, operation_kind="checkpoint")
    bench.settle()


def test_i10_a_page_below_the_boundary_is_called_live():
    bench = Bench(rules=["I10"])
    slots = given(bench)
    live(bench, slots)
    bench.clean()
    free = lambda: bench.allocator.free_swa_segment(slots[:PAGE], start_pos=0)  # noqa: E731
    bench.do("checkpoint", 1, free, "window")
    live(bench, slots)
    finding = bench.only("I10")
    assert (finding.operation, finding.pool, finding.page) == (2, "full", 1)
    assert (
        finding.message == "the cache says that page 1 is live; it has no swa page (checkpoint of request 1)"
    )
    live(bench, slots, "sweep")
    assert bench.ledger.findings == {"I10": 1}


def test_i10_a_page_that_is_asked_back_is_not_live_any_more():
    bench = Bench(rules=["I10"])
    slots = given(bench)
    bench.do("results_begin", -1, bench.allocator.free_group_begin)
    free = lambda: bench.allocator.free_swa_segment(slots[:PAGE], start_pos=0)  # noqa: E731
    bench.do("checkpoint", 1, free)
    live(bench, slots[PAGE:])
    bench.clean()
    live(bench, slots)
    assert bench.only("I10").operation == 3


def test_the_controls_are_silent_when_their_rule_is_off():
    bench = Bench(rules=["I1"])
    slots = given(bench)
    bench.do("evict_windows", 1, lambda: bench.allocator.free_swa(torch.as_tensor(slots)))
    read(bench, slots)
    live(bench, slots)
    bench.clean()
