"""The verdict of what ranks tell: fail > unknown > pass, each with its reason."""

import msgspec
import pytest
from verdict_ranks import ASSERTED, ASSERTION, CONFIG, ERROR, FINDING, MARKS, clean, rank, verdict_of

from stress.config import load_config
from stress.result import StepPlans
from stress.verdict import EXIT_CODES, make_verdict, worst


def test_a_clean_arm_passes():
    document = verdict_of(*clean())
    assert (document["verdict"], document["as_expected"]) == ("pass", True)
    assert document["schema"] == 1
    assert document["layout"] == {
        "tp_size": 2,
        "dp_size": 2,
        "attn_tp_size": 1,
        "ranks": 2,
        "launcher": "local",
        "device": "cpu",
    }
    arm = document["arms"]["patched"]
    assert arm["target"] == "reference"
    assert arm["release"] == "filter-per-group"
    assert arm["rules_watched"] == ["I1", "I2", "I10"]
    assert arm["totals"] == {
        "ranks": 2,
        "ranks_asserted": 0,
        "asserts": 0,
        "errors": 0,
        "findings": 0,
        "requests_started": 20,
        "requests_finished": 18,
        "requests_cancelled": 2,
        "virtual_s": 1.200001,
        "operations": 100,
        "rows_skipped": 0,
    }
    assert document["coverage"]["missing"] == []
    assert document["coverage"]["reached"] == {mark: 6 for mark in sorted(MARKS)}
    assert document["divergence"] is None


def test_an_expected_failure_stays_raw_and_is_as_expected():
    unpatched = [rank("unpatched", 0, "asserted", **ASSERTED), rank("unpatched", 1, "asserted", **ASSERTED)]
    document = verdict_of(*clean(), arms=("unpatched", "patched"), unpatched=unpatched)
    assert (document["verdict"], document["as_expected"]) == ("fail", True)
    assert document["arms"]["unpatched"]["totals"]["findings"] == 782
    assert document["arms"]["unpatched"]["totals"]["ranks_asserted"] == 2
    first = document["arms"]["unpatched"]["ranks"][0]
    assert first["first_finding"] == {
        "rule": "I1",
        "pool": "swa",
        "operation": 40,
        "noticed": 41,
        "virtual_s": 1.2,
        "page": 0,
        "message": "page 0 returned 391 times",
        "history": FINDING.history,
    }
    assert first["first_assert"] == {
        "operation": 41,
        "virtual_s": 1.2,
        "where": "free_group_end",
        "message": "5120 > 4096",
    }
    assert document["coverage"]["missing"] == []
    assert any("2 of 2 ranks asserted" in reason for reason in document["reasons"])


def test_a_failure_that_did_not_come_is_not_as_expected():
    ranks = [rank("unpatched", 0), rank("unpatched", 1)]
    document = verdict_of(*clean(), arms=("unpatched", "patched"), unpatched=ranks)
    assert (document["verdict"], document["as_expected"]) == ("pass", False)
    assert "Arm unpatched was expected to fail and did not." in document["reasons"]


def test_of_an_arm_that_is_unknown_nobody_says_that_it_did_not_fail():
    ranks = [rank("unpatched", 0), rank("unpatched", 1, "stopped")]
    document = verdict_of(*clean(), arms=("unpatched", "patched"), unpatched=ranks)
    assert (document["verdict"], document["as_expected"]) == ("unknown", False)
    assert "expected" not in " ".join(document["reasons"])


FAILS = [
    {"findings": {"I1": 1}},
    {"asserts": 1, "first_assert": ASSERTION, "status": "asserted"},
    {"errors": 1, "first_error": ERROR, "status": "errored"},
    {"errors": 1, "requests_finished": 8},
]
UNKNOWN = [
    ({"status": "lost", "message": "killed by\nSIGKILL"}, "rank 1 lost: killed by SIGKILL"),
    ({"status": "stopped"}, "rank 1 stopped"),
    (
        {"checker_crashed": "Traceback (most recent call last):\n  File\nZeroDivisionError: x"},
        "rank 1 lost a check that crashed: ZeroDivisionError: x",
    ),
    ({"requests_finished": 8}, "rank 1 started 10 requests but 9 finished"),
    ({"status": "asserted"}, "with no assert"),
]


@pytest.mark.parametrize("fields", FAILS)
def test_findings_asserts_and_errors_fail(fields):
    document = verdict_of(rank("patched", 0), rank("patched", 1, **fields))
    assert (document["verdict"], document["as_expected"]) == ("fail", False)
    assert all("\n" not in reason for reason in document["reasons"])


@pytest.mark.parametrize(("fields", "reason"), UNKNOWN)
def test_what_shows_nothing_is_unknown(fields, reason):
    document = verdict_of(rank("patched", 0), rank("patched", 1, **fields))
    assert (document["verdict"], document["as_expected"]) == ("unknown", False)
    assert any(reason in told for told in document["reasons"])


@pytest.mark.parametrize("failing", FAILS)
@pytest.mark.parametrize(("doubtful", "reason"), UNKNOWN)
def test_fail_outweighs_unknown(failing, doubtful, reason):
    document = verdict_of(rank("patched", 0, **failing), rank("patched", 1, **doubtful))
    assert document["verdict"] == "fail"


def test_marks_count_only_in_arms_that_ran_to_their_end():
    unpatched = [rank("unpatched", 0, "asserted", **{**ASSERTED, "marks": MARKS}), rank("unpatched", 1)]
    document = verdict_of(*clean(), arms=("unpatched", "patched"), unpatched=unpatched)
    assert document["coverage"]["reached"]["retracted"] == 6


def test_ranks_and_arms_that_did_not_run_are_unknown():
    assert verdict_of(rank("patched", 0))["verdict"] == "unknown"
    document = make_verdict(CONFIG, {}, arms=["unpatched", "patched"], launcher="ray")
    assert document["verdict"] == "unknown"
    assert list(document["arms"]) == ["unpatched", "patched"]
    assert worst([]) == "unknown"


def test_a_run_that_was_ended_early_is_unknown_whatever_was_found():
    document = verdict_of(rank("patched", 0, findings={"I1": 1}), ended_early="Interrupted.")
    assert (document["verdict"], document["as_expected"]) == ("unknown", False)
    assert document["reasons"][0] == "Interrupted."
    assert document["arms"]["patched"]["verdict"] == "fail"


def test_rules_count_as_watched_where_every_rank_watched_them():
    document = verdict_of(rank("patched", 0), rank("patched", 1, rules_watched=["I2", "I1"]))
    assert document["arms"]["patched"]["rules_watched"] == ["I1", "I2"]


def test_the_digest_is_that_of_all_ranks_in_order():
    ordered = verdict_of(*clean())["digest"]
    assert len(ordered) == 32
    assert int(ordered, 16) >= 0
    assert verdict_of(*reversed(clean()))["digest"] == ordered
    assert verdict_of(rank("patched", 0), rank("patched", 1, digest="x"))["digest"] != ordered
    assert verdict_of(rank("patched", 0), rank("patched", 1, digest_partial=True))["digest"] != ordered


def test_the_document_is_json():
    document = verdict_of(rank("patched", 0, "errored", errors=1, first_error=ERROR), rank("patched", 1))
    assert msgspec.json.decode(msgspec.json.encode(document)) == document


def test_exit_codes():
    assert EXIT_CODES == {"pass": 0, "fail": 1, "unknown": 3}


def plans(digest, **fields):
    told = {"exchanges": 18, "idle": 4, "extend": 6, "decode": 8, "idle_beside_busy": 3, "digest": digest}
    return StepPlans(**{**told, **fields})


def test_ranks_that_gathered_other_step_plans_show_nothing_and_are_named():
    ranks = [rank("patched", 0, step_plans=plans("a")), rank("patched", 1, step_plans=plans("b"))]
    document = verdict_of(*ranks)
    assert document["verdict"] == "unknown"
    assert document["reasons"] == [
        "Arm patched: not all ranks gathered the same step plans, only these among themselves: rank 0; rank 1."
    ]
    told = document["arms"]["patched"]["ranks"][0]["step_plans"]
    assert told == {"exchanges": 18, "idle_beside_busy": 3, "digest": "a", "over": None}


def test_ranks_that_went_on_alone_without_a_loss_show_nothing():
    """They have checked their own pools, but of the news and step plans of their peers nothing was heard."""
    late = [rank("patched", number, digest_partial=True) for number in (0, 1)]
    document = verdict_of(*late)
    assert document["verdict"] == "unknown"
    assert document["reasons"] == [
        "Arm patched: ranks 0, 1 went on alone, for a peer came too late to an exchange or did not join; raise "
        "deadlines.exchange_s."
    ]
    lost = rank("patched", 1, "lost", message="killed by SIGKILL", digest_partial=True)
    assert verdict_of(late[0], lost)["reasons"] == ["Arm patched: rank 1 lost: killed by SIGKILL."]


def test_step_plans_are_compared_with_neither_a_partial_rank_nor_one_that_told_none():
    alike = [rank("patched", 0, step_plans=plans("a")), rank("patched", 1, step_plans=plans("a", idle=5))]
    assert verdict_of(*alike)["verdict"] == "pass"
    partial = rank("patched", 1, step_plans=plans("b"), digest_partial=True)
    assert "step plans" not in " ".join(verdict_of(alike[0], partial)["reasons"])
    document = verdict_of(alike[0], rank("patched", 1))
    assert document["verdict"] == "pass"
    assert document["arms"]["patched"]["ranks"][1]["step_plans"] is None


def test_a_pass_at_level_0_says_that_nobody_watched():
    config = load_config("smoke", ["check.level=0"])
    document = make_verdict(config, {"patched": clean()}, arms=["patched"], launcher="local")
    assert document["verdict"] == "pass"
    assert document["reasons"] == [
        "Arm patched: 18 requests finished on 2 ranks and nobody watched them: check.level is 0."
    ]
