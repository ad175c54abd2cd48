"""Two arms held together: the outcome for each pair of verdicts, and the ranks side by side."""

import pytest

from stress.compare import compare_arms, second_name

OUTCOMES = {
    ("fail", "pass"): ("reproduced_and_fixed", 0),
    ("pass", "pass"): ("not_reproduced", 4),
    ("unknown", "pass"): ("unknown", 3),
    ("pass", "unknown"): ("unknown", 3),
    ("fail", "unknown"): ("unknown", 3),
    ("unknown", "unknown"): ("unknown", 3),
    ("pass", "fail"): ("not_fixed_or_regressed", 1),
    ("fail", "fail"): ("not_fixed_or_regressed", 1),
    ("unknown", "fail"): ("not_fixed_or_regressed", 1),
}


def rank(number, findings):
    first = {"rule": "I1", "operation": 40, "message": "m"} if findings else None
    return {
        "rank": number,
        "dp_rank": number,
        "attn_tp_rank": 0,
        "status": "finished",
        "asserts": 0,
        "errors": 0,
        "findings": findings,
        "first_finding": first,
        "virtual_s": 1.0,
    }


def document(base, test, base_ranks=(), test_ranks=()):
    return {
        "arms": {
            "old": {"verdict": base, "ranks": list(base_ranks)},
            "new": {"verdict": test, "ranks": list(test_ranks)},
        }
    }


@pytest.mark.parametrize(("verdicts", "outcome"), OUTCOMES.items())
def test_outcome(verdicts, outcome):
    compared = compare_arms(document(*verdicts, [rank(0, {"I1": 3})]), "old", "new")
    assert (compared["outcome"], compared["exit_code"], compared["reason"]) == (*outcome, None)
    assert (compared["base"], compared["test"]) == ("old", "new")


@pytest.mark.parametrize(
    ("shown", "outcome"),
    [
        ({"errors": 9}, ("unknown", 3)),
        ({"errors": 9, "findings": {"I1": 0}}, ("unknown", 3)),
        ({"errors": 9, "asserts": 1}, ("reproduced_and_fixed", 0)),
        ({"errors": 9, "findings": {"I1": 1}}, ("reproduced_and_fixed", 0)),
    ],
)
def test_errors_alone_reproduce_nothing(shown, outcome):
    compared = compare_arms(document("fail", "pass", [{**rank(0, {}), **shown}]), "old", "new")
    assert (compared["outcome"], compared["exit_code"]) == outcome
    told = "The base old failed by errors alone: no rank has a finding or an assert."
    assert compared["reason"] == (told if outcome[1] == 3 else None)


def test_ranks_side_by_side():
    compared = compare_arms(
        document("fail", "pass", [rank(0, {"I1": 3, "I4": 1}), rank(1, {})], [rank(1, {})]), "old", "new"
    )
    first, second = compared["by_rank"]
    assert first["base"]["findings"] == 4
    assert first["base"]["first_finding"] == {"rule": "I1", "operation": 40}
    assert first["test"] is None
    assert (second["rank"], second["test"]["findings"], second["test"]["first_finding"]) == (1, 0, None)


def test_an_arm_against_itself_gets_a_second_name():
    assert second_name("patched", "patched") == "patched~2"
    assert second_name("unpatched", "patched") == "patched"
