"""From what the ranks found out to `verdict.json`, schema 1. Pure functions; nothing is read or written.

An arm fails by any finding, assert or error. It is unknown by a lost or stopped rank, ranks that went on alone, a
crashed check, a required mark that an arm which ran to its end never reached, or requests that don't add up:
then nothing was shown. fail > unknown > pass, over the arms too. `verdict` is raw; `as_expected` holds each arm's
verdict against its `expect`; a failure that is foreseen must show a finding or an assert, for a crash of a wrong
setting fails too. A run that was ended early is unknown, whatever its arms showed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from stress.arm_layout import arm_ranks
from stress.config_schema import Config
from stress.result import RankResult
from stress.verdict_coverage import coverage_of
from stress.verdict_rank import rank_document, seconds
from stress.verdict_reasons import doubts_of, failures_of, sorted_rules

SCHEMA = 1
EXIT_CODES = {"pass": 0, "fail": 1, "unknown": 3}
_WORST_FIRST = ("fail", "unknown", "pass")


def make_verdict(
    config: Config,
    results: dict[str, list[RankResult]],
    *,
    arms: list[str],
    launcher: str,
    ended_early: str = "",
    workload: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """The verdict document.

    Args:
        results: ranks by arm; an arm or a rank that is not there did not run.
        arms: names of the arms that were to run, in order. NAME~2 is a second run of NAME.
        ended_early: why the run was not run to its end, a sentence; the run is unknown then.
        workload: what was planned (see Plan.contents); None where nothing was.
    """
    ordered = {arm: sorted(results.get(arm, []), key=lambda result: result.rank) for arm in arms}
    documents = {arm: _arm_document(config, arm, ranks) for arm, ranks in ordered.items()}
    reasons = [reason for document in documents.values() for reason in document.pop("reasons")]
    verdict = worst([document["verdict"] for document in documents.values()])
    if ended_early:
        verdict = "unknown"
        reasons.insert(0, ended_early)
    return {
        "schema": SCHEMA,
        "verdict": verdict,
        "as_expected": not ended_early and all(document["as_expected"] for document in documents.values()),
        "reasons": reasons,
        "config": config.name,
        "seed": config.seed,
        "digest": run_digest(
            {
                arm: [(_index(config, r), r.digest, r.digest_partial) for r in ranks]
                for arm, ranks in ordered.items()
            }
        ),
        "layout": _layout_document(config, ordered, launcher),
        "arms": documents,
        "coverage": coverage_of([(config, ranks) for ranks in ordered.values()]),
        "divergence": None,  # what the ranks recorded is not known here
        "workload": workload,
    }


def worst(verdicts: list[str]) -> str:
    """fail > unknown > pass; of nothing it is unknown."""
    return next((verdict for verdict in _WORST_FIRST if verdict in verdicts), "unknown")


def _arm_document(config: Config, arm: str, ranks: list[RankResult]) -> dict[str, Any]:
    record = config.arms.record(arm)
    failures = failures_of(ranks)
    doubts = doubts_of(config, arm, ranks)
    verdict = "fail" if failures else "unknown" if doubts else "pass"
    shown = any(result.asserts or any(result.findings.values()) for result in ranks)
    as_expected = verdict == record.expect and (shown or verdict == "pass")
    reasons = [f"Arm {arm}: {reason}." for reason in failures + doubts]
    if as_expected and verdict == "fail":
        reasons.append(f"Arm {arm} failed, as expected.")
    elif record.expect == verdict == "fail":
        reasons.append(
            f"Arm {arm} was expected to fail, but by a finding or an assert, and has errors alone."
        )
    elif record.expect == "fail" and verdict == "pass":
        reasons.append(f"Arm {arm} was expected to fail and did not.")
    elif verdict == "pass":
        finished = _totals(ranks)["requests_finished"]
        seen = "without a finding" if config.check.level else "and nobody watched them: check.level is 0"
        reasons.append(f"Arm {arm}: {finished} requests finished on {len(ranks)} ranks {seen}.")
    return {
        "target": record.target,
        "release": record.release,
        "fault": record.fault,
        "expect": record.expect,
        "verdict": verdict,
        "as_expected": as_expected,
        "ranks_planned": len(arm_ranks(config, arm)),
        "rules_watched": _rules_watched(ranks),
        "totals": _totals(ranks),
        "ranks": [rank_document(result) for result in ranks],
        "reasons": reasons,
    }


def _totals(ranks: list[RankResult]) -> dict[str, Any]:
    # The ranks of an attention-TP group serve the same requests: each request counts once.
    serving = [result for result in ranks if result.attn_tp_rank == 0]
    return {
        "ranks": len(ranks),
        "ranks_asserted": sum(result.asserts > 0 for result in ranks),
        "asserts": sum(result.asserts for result in ranks),
        "errors": sum(result.errors for result in ranks),
        "findings": sum(sum(result.findings.values()) for result in ranks),
        "requests_started": sum(result.requests_started for result in serving),
        "requests_finished": sum(result.requests_finished for result in serving),
        "requests_cancelled": sum(result.requests_cancelled for result in serving),
        "virtual_s": seconds(max((result.virtual_us for result in ranks), default=0)),
        "operations": sum(result.operations for result in ranks),
        "rows_skipped": max((result.rows_skipped for result in ranks), default=0),
    }


def _rules_watched(ranks: list[RankResult]) -> list[str]:
    """Rules that every rank watched: one that a rank did not watch has not held there."""
    told = [set(result.rules_watched) for result in ranks if result.rules_watched]
    return sorted_rules(set.intersection(*told)) if told else []


def run_digest(arms: Mapping[str, Iterable[tuple[int, str, bool]]]) -> str:
    """One digest of all ranks of all arms; by arm (index in the arm, its digest, whether that is partial), in order."""
    digest = hashlib.blake2b(digest_size=16)
    for arm, ranks in arms.items():
        for rank in ranks:
            digest.update(msgspec.json.encode([arm, *rank]))
    return digest.hexdigest()


def _index(config: Config, result: RankResult) -> int:
    return result.dp_rank * config.layout.attn_tp_size + result.attn_tp_rank


def _layout_document(config: Config, results: dict[str, list[RankResult]], launcher: str) -> dict[str, Any]:
    devices = [result.device for ranks in results.values() for result in ranks if result.device]
    return {
        "tp_size": config.layout.tp_size,
        "dp_size": config.layout.dp_size,
        "attn_tp_size": config.layout.attn_tp_size,
        "ranks": config.layout.ranks,
        "launcher": launcher,
        "device": devices[0].partition(":")[0] if devices else config.layout.device,
    }
