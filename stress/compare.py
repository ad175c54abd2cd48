"""Holds two arms of one verdict document together: is the base's fault reproduced, and does the test fix it?

Both arms got the same requests and seed, so a difference is the target's. A failing test arm decides alone;
an unknown arm shows nothing, so nothing is concluded from the other one either. A base that failed by errors
alone shows nothing either: a wrong setting crashes too, and only a finding or an assert is a reproduction.
"""

from __future__ import annotations

from typing import Any

from stress.verdict_rank import place_of

REPRODUCED_AND_FIXED = "reproduced_and_fixed"
NOT_FIXED_OR_REGRESSED = "not_fixed_or_regressed"
UNKNOWN = "unknown"
NOT_REPRODUCED = "not_reproduced"
EXIT_CODES = {REPRODUCED_AND_FIXED: 0, NOT_FIXED_OR_REGRESSED: 1, UNKNOWN: 3, NOT_REPRODUCED: 4}


def second_name(base: str, test: str) -> str:
    """The name under which the test arm runs: NAME~2 where both are the same arm."""
    return f"{test}~2" if test == base else test


def compare_arms(document: dict[str, Any], base: str, test: str) -> dict[str, Any]:
    """The `compare` entry of a verdict document that holds both arms.

    Returns:
        {"base", "test", "outcome", "exit_code", "reason", "by_rank": [{"rank", "test_rank", "base": {...},
        "test": {...}}]}. Ranks at the same place in their arms stand side by side: `rank` is the base's number,
        `test_rank` the test's; each is null, like its half, where that arm has no such rank.
        `reason` is a sentence where the verdicts alone do not explain the outcome, else null.
    """
    outcome, reason = _outcome(document, base, test)
    return {
        "base": base,
        "test": test,
        "outcome": outcome,
        "exit_code": EXIT_CODES[outcome],
        "reason": reason,
        "by_rank": _by_rank(document["arms"][base]["ranks"], document["arms"][test]["ranks"]),
    }


def _outcome(document: dict[str, Any], base: str, test: str) -> tuple[str, str | None]:
    verdicts = (document["arms"][base]["verdict"], document["arms"][test]["verdict"])
    if verdicts[1] == "fail":
        return NOT_FIXED_OR_REGRESSED, None
    if UNKNOWN in verdicts:
        return UNKNOWN, None
    if verdicts[0] != "fail":
        return NOT_REPRODUCED, None
    if not any(rank["asserts"] or any(rank["findings"].values()) for rank in document["arms"][base]["ranks"]):
        return UNKNOWN, f"The base {base} failed by errors alone: no rank has a finding or an assert."
    return REPRODUCED_AND_FIXED, None


def _by_rank(base: list[dict[str, Any]], test: list[dict[str, Any]]) -> list[dict[str, Any]]:
    pairs: dict[tuple[int, int], list[dict[str, Any] | None]] = {}
    for side, ranks in enumerate((base, test)):
        for rank in ranks:
            pairs.setdefault(place_of(rank), [None, None])[side] = rank
    return [
        {
            "rank": ours and ours["rank"],
            "test_rank": theirs and theirs["rank"],
            "base": ours and _brief(ours),
            "test": theirs and _brief(theirs),
        }
        for _, (ours, theirs) in sorted(pairs.items(), key=lambda pair: pair[0])
    ]


def _brief(rank: dict[str, Any]) -> dict[str, Any]:
    first = rank["first_finding"]
    return {
        "status": rank["status"],
        "asserts": rank["asserts"],
        "errors": rank["errors"],
        "findings": sum(rank["findings"].values()),
        "first_finding": first and {"rule": first["rule"], "operation": first["operation"]},
        "virtual_s": rank["virtual_s"],
    }
