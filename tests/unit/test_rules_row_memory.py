"""I9 for memory that rows own: its controls, each with the rule on and off, and what it must not flag."""

import pytest

from allocator.hybrid_swa import HybridSWAAllocator
from allocator.swa_ring import SWARing
from stress.check.event import Cause, EdgeShape, PoolShape
from stress.check.shadow import Ledger
from stress.engine.contract import RowPass
from stress.probe import watch
from stress.probe.row_watch import RowWatch

PAGE, PLACES = 4, 3
RING = PoolShape("rows", 2 * PLACES, PAGE, 0, first_page=PLACES)
POOLS = (PoolShape("full", 64, PAGE, 0), PoolShape("swa", 16, PAGE, 0), RING)
EDGES = (EdgeShape("full", "rows", gives_back=False),)


class Rows:
    """Two rows of three pages under watch; `run` is one operation."""

    def __init__(self, rules=None):
        self.ring = SWARing(2, PLACES * PAGE, PAGE)
        self.ledger = Ledger(POOLS, EDGES, 2, rules)
        self.watch = watch(
            HybridSWAAllocator(64 * PAGE, 16 * PAGE, PAGE, ring=True), POOLS, EDGES, self.ledger
        )
        self.rows = RowWatch(self.ring, RING, self.watch)
        self.number = 0

    def run(self, kind, rid, call):
        self.number += 1
        self.watch.begin(Cause(self.number, kind, rid, ""), self.number * 1000)
        try:
            return call()
        finally:
            self.watch.end()

    def acquire(self, rid):
        return self.run("admit", rid, lambda: self.ring.acquire(rid))

    def release(self, rid, lent):
        return self.run("finish", rid, lambda: self.ring.release(lent))

    def forward(self, rid, lent, written, read):
        written, read = list(written), list(read)
        at = lambda blocks: [lent.row * PLACES + block % PLACES for block in blocks]  # noqa: E731
        row_pass = RowPass(at(written), written, at(read), read)
        self.run("commit", -1, lambda: self.rows.tell_pass(rid, row_pass))


def test_a_window_that_slides_through_its_row_is_clean():
    rows = Rows()
    first, second = rows.acquire(1), rows.acquire(2)
    for end in range(1, 8):
        for rid, lent in ((1, first), (2, second)):
            rows.forward(rid, lent, [end - 1], range(max(0, end - PLACES), end))
    rows.release(1, first)
    again = rows.acquire(3)
    assert again.row == first.row
    rows.forward(3, again, [4, 5], [4, 5])
    rows.release(2, second)
    rows.release(3, again)
    assert (rows.ledger.findings, rows.ledger.crashed) == ({}, "")


def stale(rows):
    """Request 2 takes over the row of request 1 and reads of its window what it has not written."""
    lent = rows.acquire(1)
    rows.forward(1, lent, [0, 1, 2], [0, 1, 2])
    rows.release(1, lent)
    again = rows.acquire(2)
    rows.forward(2, again, [2], [1, 2])
    return 4, "which it has not written since it has the row (admit of request 2)"


def overwritten(rows):
    """A page has taken the place of one that is still read."""
    lent = rows.acquire(1)
    rows.forward(1, lent, [0, 1, 2], [0, 1, 2])
    rows.forward(1, lent, [3], [0, 1, 2])
    return 3, "which holds its page 3"


def another_row(rows):
    """Request 2 reads in the row of request 1."""
    lent, _ = rows.acquire(1), rows.acquire(2)
    rows.forward(1, lent, [0], [0])
    rows.forward(2, lent, [], [0])
    return 4, "which is not on loan to it"


@pytest.mark.parametrize("wrong", [stale, overwritten, another_row])
def test_what_is_not_its_window_is_found(wrong):
    rows = Rows()
    operation, why = wrong(rows)
    assert rows.ledger.findings == {"I9": 1}
    finding = rows.ledger.first
    assert (finding.rule, finding.pool, finding.operation) == ("I9", "rows", operation)
    assert why in finding.message
    without = Rows(["I1", "I2", "I3", "I7"])
    wrong(without)
    assert without.ledger.findings == {}, "nothing else sees it"


def test_a_row_that_is_not_given_back_is_on_loan():
    rows = Rows()
    rows.acquire(1)
    assert rows.ledger.shadow.pools["rows"].lent == PLACES
    assert rows.watch.pools[-1].free_pages() == PLACES
