"""I14 and I22: what they must flag, and what they must not."""

from __future__ import annotations

import numpy as np
import pytest

from stress.check.event import Cause, EdgeShape, Event, EventKind, PoolShape
from stress.check.shadow import Ledger

POOLS = (PoolShape("full", 8, 16, 0), PoolShape("swa", 8, 16, 0))
EDGES = (EdgeShape("full", "swa"),)


def told(kind: EventKind, *rows: tuple[int, tuple[int, ...]]) -> Ledger:
    """A ledger that was shown (operation, numbers) of one kind, one after the other."""
    ledger = Ledger(POOLS, EDGES)
    for operation, numbers in rows:
        cause = Cause(operation, "extend", 4, "")
        ledger.observe(Event(kind, "full", np.array(numbers), None, cause, 1, "extend", operation * 1000))
        ledger.settle(operation, operation * 1000)
    return ledger


def test_a_refusal_that_the_counts_do_not_explain() -> None:
    ledger = told(EventKind.REFUSED, (5, (3, 1, 2, 4, 0)))
    assert ledger.findings == {"I14": 1}
    assert ledger.first.operation == 5
    assert ledger.first.message == (
        "3 pages were refused (extend of request 4): full has 1 free and 2 evictable, swa has 4 free and 0 evictable"
    )


@pytest.mark.parametrize("numbers", [(4, 1, 2, 4, 0), (4, 4, 0, 1, 2)])
def test_a_refusal_for_want_of_pages_in_some_pool(numbers: tuple[int, ...]) -> None:
    assert told(EventKind.REFUSED, (5, numbers)).findings == {}


def test_a_request_that_waits_for_nothing() -> None:
    ledger = told(EventKind.CLOCK, (7, (2, 50_000_000, 0, 0, 0)), (7, (2, 70_000_000, 0, 0, 0)))
    assert ledger.findings == {"I22": 1}
    assert "2 requests wait, one for 70.0 s, and nothing is under way" in ledger.first.message


def test_a_transfer_that_nobody_takes_notice_of() -> None:
    ledger = told(EventKind.CLOCK, (7, (0, 0, 3, 1, 61_000_000)), (9, (0, 0, 3, 1, 90_000_000)))
    assert ledger.findings == {"I22": 1}
    assert "due 61.0 s ago" in ledger.first.message


@pytest.mark.parametrize(
    "rows",
    [
        [(7, (2, 70_000_000, 1, 0, 0)), (7, (2, 80_000_000, 1, 0, 0))],  # one runs
        [(7, (2, 70_000_000, 0, 1, 0)), (7, (2, 80_000_000, 0, 1, 0))],  # a transfer is on its way
        [(7, (2, 70_000_000, 0, 0, 0)), (8, (2, 80_000_000, 0, 0, 0))],  # something was asked meanwhile
        [(7, (0, 0, 0, 1, 90_000_000)), (7, (0, 0, 0, 1, 99_000_000))],  # nobody is there to care
    ],
)
def test_work_that_goes_on(rows: list[tuple[int, tuple[int, ...]]]) -> None:
    assert told(EventKind.CLOCK, *rows).findings == {}
