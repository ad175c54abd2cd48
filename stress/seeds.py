"""The sum over the seeds of one configuration: its verdict.json, "kind": "seeds". Pure functions.

Each seed is a run of its own, kept whole in a run directory beside the sum. A seed that shows nothing of an arm is no
trial of that arm: it counts in no share. The sum is unknown until every seed was made. Both arms of a comparison get
the same seeds; Fisher's test does not use that they are paired, so its p is rather too large than too small.
"""

from __future__ import annotations

from typing import Any

import msgspec

from stress.compare import EXIT_CODES, NOT_FIXED_OR_REGRESSED, NOT_REPRODUCED, REPRODUCED_AND_FIXED, UNKNOWN
from stress.exact_statistics import fisher_p, share_bounds
from stress.verdict import worst

SCHEMA = 1
UNDER_WAY = "The seeds go on, or the run was killed."
NOT_RUN = "It was not run."


class Pair(msgspec.Struct, frozen=True, kw_only=True):
    """The arms of a comparison, by the names under which they run."""

    base: str
    test: str


def entry_of(seed: int, run_dir: str, document: dict[str, Any], pair: Pair | None) -> dict[str, Any]:
    """One seed's entry, from its run's verdict document.

    `outcome` is that of its comparison; in it `reproduced` is whether the base failed by a finding or an assert,
    `fixed` whether the test arm passed; null: unknown. `doubts`: why something is unknown.
    """
    arms = {arm: entry["verdict"] for arm, entry in document["arms"].items()}
    entry = {
        "seed": seed,
        "verdict": document["verdict"],
        "as_expected": document["as_expected"],
        "outcome": None,
        "digest": document["digest"],
        "run_dir": run_dir,
        "arms": arms,
        "first_finding": _first_finding(document),
        "doubts": _doubts(document),
    }
    if pair is None:
        return entry
    base = arms[pair.base]
    shown = any(
        rank["asserts"] or any(rank["findings"].values()) for rank in document["arms"][pair.base]["ranks"]
    )
    return entry | {
        "outcome": document["compare"]["outcome"],
        "reproduced": None if base == "unknown" or (base == "fail" and not shown) else base == "fail",
        "fixed": {"pass": True, "fail": False}.get(arms[pair.test]),
    }


def unmade(seed: int, why: str, pair: Pair | None) -> dict[str, Any]:
    """The entry of a seed that no run was made of."""
    entry = dict.fromkeys(("outcome", "digest", "run_dir", "first_finding"))
    compared = {} if pair is None else {"reproduced": None, "fixed": None}
    entry |= {"seed": seed, "verdict": "unknown", "as_expected": False, "arms": {}, "doubts": [why]}
    return entry | compared


def seeds_document(
    config: str,
    launcher: str,
    arms: list[str],
    entries: list[dict[str, Any]],
    pair: Pair | None,
    ended_early: str = "",
) -> dict[str, Any]:
    """The document; `entries`: one a seed, in order. `ended_early`: why not all seeds were made, a sentence."""
    complete = all(entry["run_dir"] is not None for entry in entries) and not ended_early
    counts = _counts(arms, entries, pair)
    document = {
        "schema": SCHEMA,
        "kind": "seeds",
        "verdict": worst([entry["verdict"] for entry in entries]) if complete else "unknown",
        "as_expected": complete and all(entry["as_expected"] for entry in entries),
        "reasons": [],
        "config": config,
        "launcher": launcher,
        "arms": arms,
        "seeds": entries,
        "k_of_n": counts,
    }
    if pair is not None:
        outcome = _outcome(entries) if complete else UNKNOWN
        document["compare"] = {
            "base": pair.base,
            "test": pair.test,
            "outcome": outcome,
            "exit_code": EXIT_CODES[outcome],
        }
    early = [ended_early] if ended_early else [] if complete else [UNDER_WAY]
    document["reasons"] = [*early, *_sentences(counts, pair), *_seed_doubts(entries)]
    return document


def is_unfinished(document: dict[str, Any]) -> bool:
    return UNDER_WAY in document["reasons"]


def share_text(share: dict[str, Any]) -> str:
    """`7 of 10 seeds (95 %: 35-93 %)`."""
    low, high = (round(100 * share[key]) for key in ("low_95", "high_95"))
    return f"{share['k']} of {share['n']} {'seed' if share['n'] == 1 else 'seeds'} (95 %: {low}-{high} %)"


def _outcome(entries: list[dict[str, Any]]) -> str:
    outcomes = [entry["outcome"] for entry in entries]
    if NOT_FIXED_OR_REGRESSED in outcomes:
        return NOT_FIXED_OR_REGRESSED
    if UNKNOWN in outcomes:
        return UNKNOWN
    return REPRODUCED_AND_FIXED if REPRODUCED_AND_FIXED in outcomes else NOT_REPRODUCED


def _counts(arms: list[str], entries: list[dict[str, Any]], pair: Pair | None) -> dict[str, Any]:
    """k of n: of how many seeds that showed it."""
    verdicts = {arm: [entry["arms"].get(arm, "unknown") for entry in entries] for arm in arms}
    counts: dict[str, Any] = {
        "failed": {
            arm: _share([{"fail": True, "pass": False}.get(verdict) for verdict in told])
            for arm, told in verdicts.items()
        }
    }
    if pair is not None:
        reproduced = _share([entry["reproduced"] for entry in entries])
        fixed = _share([entry["fixed"] for entry in entries])
        p = fisher_p(reproduced["k"], reproduced["n"], fixed["n"] - fixed["k"], fixed["n"])
        counts |= {"reproduced": reproduced, "fixed": fixed, "fisher_p": float(p)}
    return counts


def _share(told: list[bool | None]) -> dict[str, Any]:
    known = [each for each in told if each is not None]
    low, high = share_bounds(sum(known), len(known))
    return {"k": sum(known), "n": len(known), "low_95": low, "high_95": high}


def _sentences(counts: dict[str, Any], pair: Pair | None) -> list[str]:
    if pair is None:
        return [f"Arm {arm} failed in {share_text(share)}." for arm, share in counts["failed"].items()]
    reproduced, fixed = counts["reproduced"], counts["fixed"]
    return [
        f"Reproduced in {share_text(reproduced)}, fixed in {share_text(fixed)}.",
        f"Fisher's exact p = {counts['fisher_p']:.2g} between the arms' failing seeds: {reproduced['k']} of "
        f"{reproduced['n']} of {pair.base}, {fixed['n'] - fixed['k']} of {fixed['n']} of {pair.test}.",
    ]


def _seed_doubts(entries: list[dict[str, Any]]) -> list[str]:
    return [
        f"Seed {entry['seed']}: {doubt}"
        for entry in entries
        for doubt in entry["doubts"]
        if entry["run_dir"] is not None
    ]


def _doubts(document: dict[str, Any]) -> list[str]:
    """The sentences of the run's verdict that say why something is unknown."""
    unknown = tuple(f"Arm {arm}:" for arm, entry in document["arms"].items() if entry["verdict"] == "unknown")
    doubts = [
        reason
        for reason in document["reasons"]
        if not reason.startswith("Arm ") or (unknown and reason.startswith(unknown))
    ]
    why = (document.get("compare") or {}).get("reason")
    return [*doubts, *([why] if why else [])]


def _first_finding(document: dict[str, Any]) -> dict[str, Any] | None:
    """The earliest finding over the arms, in virtual time; its page's history is in the run's own verdict.json."""
    found = [
        (rank["first_finding"]["virtual_s"], place, rank["rank"], arm)
        for place, (arm, entry) in enumerate(document["arms"].items())
        for rank in entry["ranks"]
        if rank["first_finding"]
    ]
    if not found:
        return None
    _, _, number, arm = min(found)
    finding = next(rank for rank in document["arms"][arm]["ranks"] if rank["rank"] == number)["first_finding"]
    keys = ("rule", "pool", "page", "operation", "virtual_s", "message")
    return {"arm": arm, "rank": number, **{key: finding[key] for key in keys}}
