"""Marks that a run is or is not asked for, and the words of the reasons."""

import pytest
from verdict_ranks import ERROR, MARKS, clean, rank, verdict_of

from stress.config import load_config
from stress.result import RankError
from stress.verdict import make_verdict


def test_a_mark_that_no_rank_reached_is_unknown():
    marks = {mark: count for mark, count in MARKS.items() if mark != "retracted"}
    document = verdict_of(rank("patched", 0, marks=marks), rank("patched", 1, marks=marks))
    assert document["verdict"] == "unknown"
    assert document["coverage"]["missing"] == ["retracted"]
    one = verdict_of(rank("patched", 0, marks=marks), rank("patched", 1))
    assert one["verdict"] == "pass"


def test_a_rule_that_was_named_and_not_watched_is_unknown():
    def told(rules, *watched):
        config = load_config("smoke", [f"check.rules={rules}"])
        ranks = [rank("patched", number, rules_watched=list(one)) for number, one in enumerate(watched)]
        return make_verdict(config, {"patched": ranks}, arms=["patched"], launcher="local")

    assert told('["I1", "I16"]', ["I1"], ["I1", "I16"])["verdict"] == "pass"
    document = told('["I1", "I16"]', ["I1"], ["I1"])
    assert document["verdict"] == "unknown"
    assert document["reasons"][0].startswith(
        "Arm patched: rule I16 of check.rules was not watched: check.level,"
    )
    assert "rules I1, I16 of check.rules were not" in told('["I1", "I16"]', [], [])["reasons"][0]
    assert told("[]", ["I1"], [])["verdict"] == "pass"


CURE = (
    "this workload is too small or too easy for it; smaller pools, more requests, or --set check.require=[]"
)


def test_a_mark_that_was_not_reached_comes_with_its_cure():
    def reasons(*without):
        marks = {mark: count for mark, count in MARKS.items() if mark not in without}
        return verdict_of(rank("patched", 0, marks=marks), rank("patched", 1, marks=marks))["reasons"]

    assert reasons("retracted") == [f"Arm patched: the required mark retracted was never reached: {CURE}."]
    assert reasons("retracted", "load_back") == [
        f"Arm patched: the required marks load_back, retracted were never reached: {CURE}."
    ]


@pytest.mark.parametrize(
    ("override", "exempt", "why"),
    [
        (
            "linker.enabled=false",
            ["linker_loaded_without_swa", "load_back", "free_group_with_unmapped", "offloaded"],
            "linker.enabled = false",
        ),
        ("workload.cancel_rate=0", ["cancelled"], "workload.cancel_rate = 0"),
        ("serving.draft_tokens=0", ["spec_tail_returned"], "serving.draft_tokens = 0"),
        (
            "pool.unified_kv=false",
            ["linker_loaded_without_swa"],
            "pool.unified_kv = false: loads restore SWA",
        ),
        (
            "pool.swa_ring=true",
            ["swa_released_out_of_window", "free_group_with_unmapped", "swa_evicted", "tombstone_recovered"],
            "pool.swa_ring = true: no paged SWA pool",
        ),
    ],
)
def test_a_mark_that_the_configuration_rules_out_is_not_asked_for(override, exempt, why):
    config = load_config("smoke", [override])
    marks = {mark: count for mark, count in MARKS.items() if mark not in exempt}
    ranks = [rank("patched", number, marks=marks) for number in range(2)]
    document = make_verdict(config, {"patched": ranks}, arms=["patched"], launcher="local")
    assert document["verdict"] == "pass"
    assert document["coverage"]["exempt"] == dict.fromkeys(exempt, why)
    assert document["coverage"]["missing"] == []
    assert verdict_of(*ranks)["verdict"] == "unknown"


ONE_GROUP = "the arm has one attention TP group: no rank has a peer with other requests"


@pytest.mark.parametrize(
    ("layout", "numbers", "exempt"),
    [
        (["layout.tp_size=1", "layout.dp_size=1"], [0], {"idle_rank": ONE_GROUP}),
        (["layout.tp_size=2", "layout.dp_size=1"], [0, 1], {"idle_rank": ONE_GROUP}),
        (
            ["arms.mode=parallel", "arms.patched.ranks=1", "arms.unpatched.ranks=0"],
            [1],
            {"idle_rank": ONE_GROUP},
        ),
        (["layout.tp_size=2", "layout.dp_size=2"], [0, 1], {}),
    ],
)
def test_who_has_no_peer_with_other_requests_is_not_asked_to_be_idle_beside_one(layout, numbers, exempt):
    config = load_config("smoke", [*layout, 'check.require=["idle_rank"]'])
    ranks = {"patched": [rank("patched", number) for number in numbers]}
    document = make_verdict(config, ranks, arms=["patched"], launcher="local")
    assert document["verdict"] == ("pass" if exempt else "unknown")
    assert document["coverage"]["exempt"] == exempt


def test_what_an_engine_cannot_show_is_exempt_and_said():
    marks = {mark: count for mark, count in MARKS.items() if mark != "node_split"}
    ranks = [rank("patched", number, marks=marks, marks_exempt=["node_split"]) for number in range(2)]
    document = verdict_of(*ranks)
    assert document["verdict"] == "pass"
    assert document["coverage"]["exempt"] == {
        "node_split": "the arm's engine can't show it, or screens it off"
    }


def test_a_crash_is_not_the_failure_that_was_foreseen():
    crashed = [rank("unpatched", number, "errored", errors=1, first_error=ERROR) for number in range(2)]
    document = verdict_of(*clean(), arms=("unpatched", "patched"), unpatched=crashed)
    assert (document["verdict"], document["as_expected"]) == ("fail", False)
    told = "Arm unpatched was expected to fail, but by a finding or an assert, and has errors alone."
    assert told in document["reasons"]
    for shown in ({"asserts": 1}, {"findings": {"I1": 1}}):
        ranks = [rank("unpatched", 0, errors=1, **shown), rank("unpatched", 1)]
        document = verdict_of(*clean(), arms=("unpatched", "patched"), unpatched=ranks)
        assert (document["verdict"], document["as_expected"]) == ("fail", True)


def test_one_is_singular_and_a_long_message_is_cut_with_a_sign():
    long = RankError(operation=7, virtual_us=1, kind="ValueError", message="x" * 300)
    reasons = verdict_of(rank("patched", 0, errors=1, first_error=long), rank("patched", 1))["reasons"]
    assert reasons[0] == f"Arm patched: 1 error on 1 of 2 ranks, first ValueError: {'x' * 200} [...]."
    two = verdict_of(rank("patched", 0, errors=2, findings={"I1": 1}), rank("patched", 1))["reasons"]
    assert two[0] == "Arm patched: 2 errors on 1 of 2 ranks."
    assert two[1] == "Arm patched: rule I1 was violated 1 time on 1 of 2 ranks."


def test_ranks_with_the_same_reason_share_a_sentence():
    trace = "Traceback (most recent call last):\n  File x\nMemoryError: no room\n"
    lost = [rank("patched", number, "lost", message=trace) for number in range(2)]
    assert verdict_of(*lost)["reasons"] == ["Arm patched: ranks 0, 1 lost: MemoryError: no room."]
