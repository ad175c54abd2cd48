"""Ids that a pool does not have: I1 tells of them with their history, and no other check is lost over them."""

from __future__ import annotations

import pytest
import torch
from rule_bench import FULL, PAGE, SWA, Bench

from stress.check.event import EventKind
from stress.check.rules import RULES

BEYOND = FULL + 2  # its slots lie beyond the mapping's end, too


def bench_with_strays(pool, *pages, short_cuts=True):
    """A bench on which `pages`, which the pool does not have, are lent next."""
    bench = Bench(short_cuts=short_cuts)
    target = getattr(bench.allocator, f"{pool}_attn_allocator")
    target.free_pages = torch.cat((torch.tensor(pages), target.free_pages[len(pages) :]))
    return bench


@pytest.mark.parametrize("short_cuts", [True, False])
@pytest.mark.parametrize("rid", [4, -1])
@pytest.mark.parametrize(("pool", "page", "pages"), [("full", BEYOND, FULL), ("swa", SWA + 1, SWA)])
def test_an_id_beyond_the_pool_is_told_with_its_history(pool, page, pages, rid, short_cuts):
    bench = bench_with_strays(pool, page, short_cuts=short_cuts)
    (bench.load if pool == "full" else bench.lend)(rid, 3)
    assert bench.ledger.crashed == ""
    assert len(bench.ledger.rules_watched) == len({rule.id for rule in RULES})
    finding = bench.ledger.first
    assert (finding.rule, finding.pool, finding.page, finding.operation) == ("I1", pool, page, 1)
    assert finding.message.startswith(f"page {page} (outside 1..{pages}) lent once by alloc in operation 1")
    assert finding.history[0].startswith(f"1 lent {pool} page {page}")


def test_what_follows_an_id_beyond_the_pool_is_still_judged():
    bench = bench_with_strays("full", BEYOND)
    slots = bench.load(4, 3)
    bench.load(5, 2)  # so that the pool has no reason of its own to assert
    assert bench.ledger.findings == {"I1": 1}
    for _ in range(2):
        bench.do("finish", 4, lambda: bench.allocator.free_full_segment(slots[PAGE:], start_pos=0))
    assert (bench.ledger.crashed, bench.ledger.findings) == ("", {"I1": 1, "I3": 2})


@pytest.mark.parametrize("kind", [EventKind.READ, EventKind.LIVE, EventKind.LOCK, EventKind.UNLOCK])
def test_a_stray_among_what_is_read_published_or_locked_loses_no_rule(kind):
    bench = bench_with_strays("full", BEYOND)
    bench.load(4, 3)
    bench.tell(kind, "swa", [1, BEYOND], rid=4, token=0)
    bench.settle()
    assert bench.ledger.crashed == ""


def test_the_mapping_names_no_peer_beyond_its_end():
    bench = Bench()
    slots = bench.lend(1, 1)
    page, entries = int(slots[0]) // PAGE, bench.watch.entries
    (peer,) = entries.of([page])
    assert peer > 0
    assert entries.of([page, BEYOND]) == [peer, 0]
    pages = torch.tensor([page, BEYOND, -1]).numpy()
    assert entries.of(pages).tolist() == [peer, 0, 0]
