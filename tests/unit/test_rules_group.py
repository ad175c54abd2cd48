"""Controls of I17 to I19 between ranks: what a group told itself; each fails when its rule is switched off."""

from __future__ import annotations

import numpy as np
import pytest
from rule_bench import EDGES, POOLS

from stress.check.event import Cause, Event, EventKind
from stress.check.shadow import Ledger
from stress.operation import KIND_CODES, Kind

ADMIT, POLL = KIND_CODES[Kind.ADMIT], KIND_CODES[Kind.POLL]
OPERATION = 50
PLAN, LOOKUPS, TRANSFERS = 0, 1, 2


def tell(ledger, kind, pages, peers=None, token=0, method="exchange", pool="full", rid=-1):
    ids = np.array(pages, dtype=np.int64).ravel()
    peers = None if peers is None else np.array(peers, dtype=np.int64)
    ledger.observe(Event(kind, pool, ids, peers, Cause(OPERATION, "admit", rid, ""), 1, method, 7, token))


def judged(ledger, rule):
    ledger.settle(OPERATION, 7)
    assert ledger.crashed == ""
    if rule not in ledger.rules_watched:
        assert ledger.findings == {}
        return None
    assert list(ledger.findings) == [rule]
    return ledger.kept[0]


def decisions(rank, *rows):
    """Rows (number, digest, kind, rid, answer, answer)."""
    return [(rank, *row) for row in rows]


@pytest.mark.parametrize("rules", [["I18"], ["I19"]])
def test_the_first_operation_that_differs_is_named(rules) -> None:
    ledger = Ledger(POOLS, EDGES, 2, rules)
    own = decisions(2, (41, 9, POLL, -1, 1, -1), (42, 7, ADMIT, 5, 64, 512), (43, 8, POLL, -1, 1, -1))
    other = decisions(3, (41, 9, POLL, -1, 1, -1), (42, 6, ADMIT, 5, 64, 0))
    tell(ledger, EventKind.DECISIONS, [*own, *other], token=2)
    finding = judged(ledger, "I18")
    if finding is None:
        return
    assert (finding.operation, finding.noticed, finding.pool, finding.history) == (42, OPERATION, "", [])
    assert "admit of request 5 (answer 64, 512) on this rank" in finding.message
    assert "admit of request 5 (answer 64, 0) on rank 3" in finding.message


def test_an_operation_that_one_rank_alone_issued_differs() -> None:
    ledger = Ledger(POOLS, EDGES, 2, ["I18"])
    tell(ledger, EventKind.DECISIONS, decisions(1, (41, 9, POLL, -1, 1, -1)), token=0)
    finding = judged(ledger, "I18")
    assert finding.operation == 41
    assert "nothing on this rank, poll (answer 1) on rank 1" in finding.message


def test_ranks_that_decide_alike_are_clean() -> None:
    ledger = Ledger(POOLS, EDGES, 2, ["I18"])
    rows = [(41, 9, POLL, -1, 1, -1), (42, 7, ADMIT, 5, 64, 512)]
    tell(ledger, EventKind.DECISIONS, [*decisions(0, *rows), *decisions(1, *rows)])
    assert ledger.findings == {}


def rows(**ranks):
    """rank=[(first, count, name, size), ...]."""
    return [(int(rank[1:]), *row) for rank, told in ranks.items() for row in told]


ALL = (0, 4, PLAN, 4)
RIGHT = rows(
    r0=[ALL, (0, 2, LOOKUPS, 9), (0, 2, TRANSFERS, 3)],
    r1=[ALL, (0, 2, LOOKUPS, 9), (0, 2, TRANSFERS, 3)],
    r2=[ALL],
    r3=[ALL],
)
WRONG = {
    "left out": rows(r0=[ALL, (0, 2, TRANSFERS, 3)], r1=[ALL], r2=[ALL], r3=[ALL]),
    "other size": rows(r0=[ALL, (0, 2, TRANSFERS, 3)], r1=[ALL, (0, 2, TRANSFERS, 2)]),
    "other order": rows(
        r0=[ALL, (0, 2, LOOKUPS, 1), (0, 2, TRANSFERS, 1)], r1=[ALL, (0, 2, TRANSFERS, 1), (0, 2, LOOKUPS, 1)]
    ),
    "wrong group, others idle": rows(
        r0=[ALL, (0, 4, TRANSFERS, 3)], r1=[ALL, (0, 4, TRANSFERS, 3)], r2=[ALL], r3=[ALL]
    ),
}


@pytest.mark.parametrize("rules", [["I19"], ["I18"]])
@pytest.mark.parametrize("wrong", WRONG)
def test_a_collective_that_not_all_run_alike_is_found(wrong, rules) -> None:
    ledger = Ledger(POOLS, EDGES, 2, rules)
    tell(ledger, EventKind.COLLECTIVES, RIGHT)
    tell(ledger, EventKind.COLLECTIVES, RIGHT)
    assert ledger.findings == {}
    tell(ledger, EventKind.COLLECTIVES, WRONG[wrong])
    finding = judged(ledger, "I19")
    assert finding is None or "a server would wait here" in finding.message


def test_a_rank_that_is_gone_is_not_missed_and_another_group_is_not_judged() -> None:
    ledger = Ledger(POOLS, EDGES, 2, ["I19"])
    gone = rows(r0=[ALL, (0, 2, TRANSFERS, 3)], r2=[ALL, (2, 2, TRANSFERS, 1)], r3=[ALL])
    tell(ledger, EventKind.COLLECTIVES, gone)
    assert ledger.findings == {}


def load(ledger, keys, pages, windowed=()):
    """A load of keys into pages, of which `windowed` have a peer."""
    edge = ledger.shadow.edges[0]
    for page in windowed:
        edge.peer[page] = page
    tell(ledger, EventKind.TRANSFER_BEGIN, pages, keys, token=7, method="load", rid=3)
    tell(ledger, EventKind.TRANSFER_BEGIN, pages, None, token=7, method="load", pool="swa", rid=3)


def told(ledger, ends):
    """Members that can restore prefixes that end there, with windows of two pages."""
    for member, of_member in enumerate(ends):
        keys = list(range(1, max(of_member) + 1))
        window = [int(any(end - 2 < key <= end for end in of_member)) for key in keys]
        tell(ledger, EventKind.RESTORABLE, keys, window, token=member, rid=3)


@pytest.mark.parametrize("rules", [["I17"], ["I18"]])
@pytest.mark.parametrize(
    ("ends", "length", "member"), [(([4, 8], [4, 12]), 8, 1), (([4], [8]), 4, 1), (([4, 8], [4, 12]), 12, 0)]
)
def test_a_length_that_one_member_cannot_restore_is_found(ends, length, member, rules) -> None:
    ledger = Ledger(POOLS, EDGES, 2, rules)
    told(ledger, ends)
    keys = list(range(1, length + 1))
    load(ledger, keys, keys, windowed=keys[-2:])
    finding = judged(ledger, "I17")
    assert finding is None or f"member {member} of its group" in finding.message


def test_a_length_that_all_can_restore_is_clean_and_nothing_is_judged_once_the_group_is_over() -> None:
    ledger = Ledger(POOLS, EDGES, 2, ["I17"])
    told(ledger, ([4, 8], [4, 12]))
    load(ledger, [1, 2, 3, 4], [1, 2, 3, 4], windowed=[3, 4])
    assert ledger.findings == {}
    tell(ledger, EventKind.RESTORABLE, [], [], token=-1)
    load(ledger, [1, 2, 3, 4, 5, 6, 7, 8], range(1, 9), windowed=[7, 8])
    assert ledger.findings == {}
