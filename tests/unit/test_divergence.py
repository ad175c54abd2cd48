"""The first operation at which two arms part, and why."""

from __future__ import annotations

import json

from stress.cli import main
from stress.divergence import divergence_of, first_divergence
from stress.operation import Kind, Operation


def operations(*answers, kind=Kind.RESULTS_END, first=1, rows=()):
    return [Operation(first + n, kind, 1_000_000 * n, rows, answer) for n, answer in enumerate(answers)]


def arm(*ranks, watched=("I1",)):
    return {"rules_watched": list(watched), "ranks": list(ranks)}


def rank(number=0, status="finished", message=None, finding=None, asserted=None, error=None):
    return {
        "rank": number,
        "dp_rank": number,
        "attn_tp_rank": 0,
        "status": status,
        "message": message,
        "first_finding": finding and {"rule": "I1", "pool": "swa", "page": 0, "operation": finding},
        "first_assert": asserted and {"operation": asserted, "where": "free_group_end"},
        "first_error": error and {"operation": error, "kind": "KeyError"},
    }


def parted(base, test, base_arm=None, test_arm=None):
    return divergence_of(
        "a",
        "b",
        {"a": {0: base}, "b": {0: test}},
        {"a": base_arm or arm(rank()), "b": test_arm or arm(rank())},
    )


def test_the_first_other_answer_is_where_they_part_and_the_last_equal_one_is_told():
    found = parted(operations((9, 4), (9, 7), (1, 1)), operations((9, 4), (9, 3), (2, 2)))
    assert (found["kind"], found["rank"], found["operation"], found["equal_operations"]) == (
        "answer",
        0,
        2,
        1,
    )
    assert found["arms"] == {
        "a": "results_end at 1 s: 9 full pages free, 7 swa pages free",
        "b": "results_end at 1 s: 9 full pages free, 3 swa pages free",
    }
    assert found["why"] == (
        "Equal for 1 operation, then the same is answered differently: 7 swa pages free in a and 3 in b. No finding "
        "up to there; the last answered alike is 1, results_end at 0 s: 9 full pages free, 4 swa pages free."
    )


def test_what_a_scheduler_answers_is_told_request_by_request():
    """A schedule: preempted requests, counted, then request, position and tokens of each row."""
    base = operations((1, 12, 3, 96, 32, 4, 0, 8), kind=Kind.SCHEDULE)
    found = parted(base, operations((0, 3, 96, 32, 5, 0, 8), kind=Kind.SCHEDULE))
    assert found["arms"]["a"].endswith(
        "preempted request 12; request 3 from 96, 32 tokens; request 4 from 0, 8 tokens"
    )
    assert (
        "answered differently: preempted request 12; request 4 from 0, 8 tokens in a and request 5 from 0, 8 tokens "
        "in b." in found["why"]
    )
    found = parted(operations((22, 7), kind=Kind.UPDATE), operations((22,), kind=Kind.UPDATE))
    assert "answered differently: request 7 ended in a and nothing else in b." in found["why"]
    turned = operations((0, 4, 0, 8, 3, 96, 32), kind=Kind.SCHEDULE)
    assert (
        "the same in another order, from request 3 from 96, 32 tokens in a and request 4 from 0, 8 tokens in b on."
        in parted(operations((0, 3, 96, 32, 4, 0, 8), kind=Kind.SCHEDULE), turned)["why"]
    )
    many = operations((0, *range(30)), kind=Kind.SCHEDULE)
    assert (
        "; and 6 more in a and nothing scheduled in b."
        in parted(many, operations((0,), kind=Kind.SCHEDULE))["why"]
    )


def test_the_first_finding_up_to_there_explains_it_and_a_later_one_does_not():
    base, test = operations((9, 4), (9, 7)), operations((9, 4), (9, 3))
    told = "The first finding up to there: b violated I1 in pool swa, page 0, at operation 1."
    assert told in parted(base, test, arm(rank(finding=2)), arm(rank(finding=1)))["why"]
    assert told not in parted(base, test, arm(rank(finding=3)), arm(rank(finding=4)))["why"]


def test_where_nothing_was_watched_no_finding_is_not_claimed():
    base, test = operations((9, 4), (9, 7)), operations((9, 4), (9, 3))
    blind = arm(rank(asserted=1), watched=())
    why = parted(base, test, blind, arm(rank(), watched=()))["why"]
    assert why.endswith("No rule was watched; a asserted in free_group_end at operation 1.")


def test_an_arm_that_raised_parts_there():
    base, test = operations((9, 4), None), operations((9, 4), (9, 3), (9, 3))
    found = parted(base, test, arm(rank(status="asserted", asserted=2)))
    assert (found["kind"], found["operation"], found["equal_operations"]) == ("ended", 2, 1)
    assert found["arms"]["a"] == "results_end at 1 s: asserted in free_group_end"
    assert found["why"].startswith("Equal for 1 operation, until a asserted in free_group_end at 2. ")
    erred = parted(test, base, None, arm(rank(status="errored", error=2)))
    assert erred["why"].startswith("Equal for 1 operation, until b raised KeyError at 2. ")


def test_an_arm_whose_recording_ends_parts_where_the_other_goes_on():
    base = operations((9, 4), (9, 3))
    assert parted(base, list(base)) is None
    found = parted(base, base[:1], None, arm(rank(status="lost", message="killed by signal 9")))
    assert (found["kind"], found["operation"]) == ("ended", 2)
    assert found["arms"]["b"] == "had ended (lost, killed by signal 9)"
    assert found["why"].startswith(
        "Equal for 1 operation, until b ended before 2 (lost, killed by signal 9)."
    )
    assert parted(base[:1], base, arm(rank(status="stopped")))["arms"]["a"] == "had ended (stopped)"


def test_a_ring_that_turned_over_is_held_against_the_same_numbers():
    """A ring is handed out at a first finding and again at the end: what lies between may be gone."""
    base = operations((9, 4), (9, 4)) + operations((8, 1), (8, 2), first=10)
    test = operations((9, 4), (9, 4), (9, 4)) + operations((8, 1), (8, 3), first=10)
    found = parted(base, test)
    assert (found["operation"], found["equal_operations"], found["unrecorded_operations"]) == (11, 3, 7)
    assert "7 operations before it are not recorded in both arms" in found["why"]
    assert "so they may part earlier; record.operations = all tells." in found["why"]


def test_a_beginning_that_is_missing_is_said_to_be():
    raised = operations((9, 4), None)
    late = operations((9, 3), (9, 3), first=2)
    found = parted(raised, late, arm(rank(status="asserted", asserted=2)))
    assert (found["operation"], found["equal_operations"], found["unrecorded_operations"]) == (2, 0, 1)
    assert found["arms"]["b"] == "results_end at 0 s: 9 full pages free, 3 swa pages free"
    later = parted(raised, operations((9, 3), first=5), arm(rank(status="asserted", asserted=2)))
    assert (later["operation"], later["unrecorded_operations"]) == (2, 1)
    assert later["arms"]["b"] == "went on; this operation is not recorded"
    assert later["why"].startswith("Equal for 0 operations, until a asserted in free_group_end at 2. ")


def test_other_requests_are_told_from_other_answers():
    rows = ((4, 512),)
    ours, theirs = operations((1,), kind=Kind.EXTEND, rows=rows), operations((1,), kind=Kind.EXTEND)
    found = parted(ours, theirs)
    assert found["kind"] == "asked"
    assert "then the arms ask different things" in found["why"]
    later = [operation._replace(at_us=5) for operation in ours]
    assert first_divergence(ours, later).kind == "asked"


def test_a_refused_admission_is_told_from_a_hit_and_room_from_none():
    hit, refused = operations((256, 0), kind=Kind.ADMIT), operations((), kind=Kind.ADMIT)
    found = parted(hit, refused)
    assert found["arms"] == {
        "a": "admit at 0 s: 256 tokens cached, 0 tokens loaded",
        "b": "admit at 0 s: refused",
    }
    assert ": a 256 tokens cached, 0 tokens loaded, b refused." in found["why"]
    loaded = parted(hit, operations((0, 256), kind=Kind.ADMIT))
    assert "256 tokens cached in a and 0 in b, 0 tokens loaded in a and 256 in b." in loaded["why"]
    room = parted(operations((1,), kind=Kind.EXTEND), operations((0,), kind=Kind.EXTEND))
    assert ": a had room, b had no room." in room["why"]


def test_the_rank_that_parts_first_in_virtual_time_leads():
    """Operation numbers are a rank's own: the fifth of one may come before the second of another."""
    recorded = {
        "a": {0: operations((9, 4), (9, 7)), 1: operations((5, 5), first=1)},
        "b": {0: operations((9, 4), (9, 3)), 1: operations((5, 4), first=1)},
    }
    arms = {"a": arm(rank(0), rank(1)), "b": arm(rank(0), rank(1))}
    found = divergence_of("a", "b", recorded, arms)
    assert (found["rank"], found["operation"], found["ranks"]) == (1, 1, 2)
    late = {name: {**ranks, 1: [ranks[1][0]._replace(at_us=10**9)]} for name, ranks in recorded.items()}
    found = divergence_of("a", "b", late, arms)
    assert (found["rank"], found["operation"], found["ranks"]) == (0, 2, 2)
    assert divergence_of("a", "a", recorded, arms) is None


def real_divergence(capsys, tmp_path, *settings):
    overrides = [word for setting in ("check.require=[]", *settings) for word in ("--set", setting)]
    small = [
        "--set",
        "workload.requests=60",
        "--launcher",
        "inline",
        "--out",
        str(tmp_path / "run"),
        "--json",
    ]
    main(["compare", "smoke", "--base", "unpatched", "--test", "patched", *small, *overrides])
    return json.loads(capsys.readouterr().out)["divergence"]


def test_the_smoke_run_parts_at_its_assertion_after_the_finding(capsys, tmp_path):
    found = real_divergence(capsys, tmp_path)
    assert (found["rank"], found["operation"], found["kind"]) == (1, 7, "ended")
    assert found["why"] == (
        "Equal for 6 operations, until unpatched asserted in free_group_end at 7. The first finding up to there: "
        "unpatched violated I1 in pool swa, page 0, at operation 6."
    )


def test_the_smoke_run_that_counts_its_assertions_parts_by_an_answer(capsys, tmp_path):
    found = real_divergence(capsys, tmp_path, "check.on_assert=count")
    assert (found["rank"], found["operation"], found["kind"]) == (1, 7, "answer")
    assert "59 swa pages free in unpatched and 25 in patched" in found["why"]
    assert "unpatched violated I1 in pool swa, page 0, at operation 6." in found["why"]
