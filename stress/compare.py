"""Holds two arms of one verdict document together: is the base's fault reproduced, and does the test fix it?

Both arms got the same requests and seed, so a difference is the target's. A failing test arm decides alone;
an unknown arm shows nothing, so nothing is concluded from the other one either. A base that failed by errors
alone shows nothing either: a wrong setting crashes too, and only a finding or an assert is a reproduction.
"""

from __future__ import annotations

from typing import Any

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
        {"base", "test", "outcome", "exit_code", "reason", "by_rank": [{"rank", "base": {...}, "test": {...}}]}
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
    by_rank = {rank["rank"]: {"rank": rank["rank"], "base": _brief(rank), "test": None} for rank in base}
    for rank in test:
        row = by_rank.setdefault(rank["rank"], {"rank": rank["rank"], "base": None, "test": None})
        row["test"] = _brief(rank)
    return [by_rank[rank] for rank in sorted(by_rank)]


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
