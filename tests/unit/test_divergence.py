"""The first operation at which two arms part."""

from __future__ import annotations

from stress.divergence import divergence_of, first_divergence
from stress.operation import Kind, Operation


def operations(*answers, kind=Kind.RESULTS_END, first=1):
    return [Operation(first + n, kind, 1_000_000 * n, (), answer) for n, answer in enumerate(answers)]


def test_the_first_other_answer_is_where_they_part():
    base, test = operations((9, 4), (9, 7), (1, 1)), operations((9, 4), (9, 3), (2, 2))
    assert first_divergence(base, test) == (
        2,
        "results_end at 1 s: 9 full and 7 swa pages free",
        "results_end at 1 s: 9 full and 3 swa pages free",
    )


def test_an_arm_that_raised_parts_there():
    assert (
        first_divergence(operations((9, 4), None), operations((9, 4), (9, 3)))[1]
        == "results_end at 1 s: raised"
    )


def test_equal_and_shorter_recordings_do_not_part():
    base = operations((9, 4), (9, 3))
    assert first_divergence(base, list(base)) is None
    assert first_divergence(base, base[:1]) is None


def test_a_ring_that_turned_over_is_not_compared():
    assert first_divergence(operations((9, 4)), operations((9, 3), first=5)) is None


def test_a_refused_admission_is_told_from_a_hit():
    hit, refused = operations((256, 0), kind=Kind.ADMIT), operations((), kind=Kind.ADMIT)
    assert first_divergence(hit, refused) == (
        1,
        "admit at 0 s: cached 256 and loaded 0 tokens",
        "admit at 0 s: refused",
    )


def test_the_earliest_rank_leads():
    recorded = {
        ("a", 0): operations((9, 4), (9, 7)),
        ("b", 0): operations((9, 4), (9, 3)),
        ("a", 1): operations((5, 5)),
        ("b", 1): operations((5, 4)),
    }
    found = divergence_of("a", "b", recorded, 2)
    assert (found["rank"], found["operation"], found["ranks"]) == (1, 1, 2)
    assert found["arms"]["b"] == "results_end at 0 s: 5 full and 4 swa pages free"
    assert divergence_of("a", "a", recorded, 2) is None
