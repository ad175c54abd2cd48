"""check.closely = N: one request in N is watched closely. What is left out is left out for the others alone."""

from __future__ import annotations

from functools import cache

import pytest
from rank_driver import run_arm

from stress.check.event import EventKind
from stress.probe.journal import Journal

ONE_RANK = ("layout.tp_size=1", "layout.dp_size=1", "check.require=[]")
TELL = Journal.tell
OF_A_REQUEST = {EventKind.READ, EventKind.LIVE, EventKind.KEYS, EventKind.LOCK, EventKind.UNLOCK}


@cache
def run_telling(*overrides):
    """(the rank's result, what was told: kind, request, token, method); one run for all tests."""
    told = []

    def tell(self, kind, pool, pages, peers, method, slots_of=0, token=-1):
        told.append((kind, self.cause.rid, token, method))
        TELL(self, kind, pool, pages, peers, method, slots_of, token)

    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(Journal, "tell", tell)
        (result,), _ = run_arm("patched", *ONE_RANK, *overrides)
    assert result.checker_crashed == ""
    return result, told


def kinds_of(told):
    return {kind for kind, *_ in told}


def test_a_clean_run_is_clean_and_takes_the_same_course():
    whole, told_whole = run_telling()
    few, told_few = run_telling("check.closely=4")
    assert whole.findings == few.findings == {}
    assert (whole.digest, whole.operations, whole.rules_watched) == (
        few.digest,
        few.operations,
        few.rules_watched,
    )
    assert kinds_of(told_few) == kinds_of(told_whole) >= OF_A_REQUEST
    moves = (EventKind.LEND, EventKind.RETURN, EventKind.INTENT, EventKind.BIND, EventKind.HOLD)
    for kind in moves:
        assert [one for one in told_few if one[0] is kind] == [one for one in told_whole if one[0] is kind]


def test_one_request_in_four_is_told_of():
    _, told = run_telling("check.closely=4")
    for kind in (EventKind.READ, EventKind.LIVE, EventKind.KEYS):
        rids = {rid for told_kind, rid, _, method in told if told_kind is kind and method != "sweep"}
        assert rids and all(rid % 4 == 0 for rid in rids)
    holders = {method for kind, _, _, method in told if kind in (EventKind.LOCK, EventKind.UNLOCK)}
    assert holders and all(int(holder.rsplit(" ", 1)[1]) % 4 == 0 for holder in holders)


def test_each_load_is_told_and_one_offload_in_four():
    _, told = run_telling("check.closely=4")
    _, all_told = run_telling()
    begun, all_begun = (
        {
            method: {t for kind, _, t, m in one if kind is EventKind.TRANSFER_BEGIN and m == method}
            for method in ("load", "offload")
        }
        for one in (told, all_told)
    )
    assert begun["load"] == all_begun["load"] != set()
    assert begun["offload"] == {ticket for ticket in all_begun["offload"] if ticket % 4 == 0} != set()
    ended = {token for kind, _, token, _ in told if kind is EventKind.TRANSFER_END}
    assert ended <= begun["load"] | begun["offload"]


@pytest.mark.parametrize("fault", ["F01", "F06"])
def test_what_moves_pages_is_found_at_its_operation_even_so(fault):
    found = []
    for closely in (1, 1000):
        shape = (f"arms.patched.fault={fault}", f"check.closely={closely}", "check.on_finding=stop")
        (result,), _ = run_arm("patched", *ONE_RANK, *shape)
        first = result.first_finding
        found.append((first.rule, first.pool, first.page, first.operation))
    assert found[0] == found[1]
