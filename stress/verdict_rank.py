"""One rank's entry in `verdict.json`. Virtual time turns from integer microseconds into seconds here."""

from __future__ import annotations

from typing import Any

from stress.result import Assertion, Finding, RankError, RankResult, StepPlans


def seconds(virtual_us: int) -> float:
    """Seconds of virtual time, exact to the microsecond."""
    return round(virtual_us / 1_000_000, 6)


def place_of(entry: dict[str, Any]) -> tuple[int, int]:
    """Which ranks of two arms got the same requests: those at the same place in their arms."""
    return entry["dp_rank"], entry["attn_tp_rank"]


def rank_document(result: RankResult) -> dict[str, Any]:
    """The entry of one rank; what did not happen is null."""
    return {
        "rank": result.rank,
        "dp_rank": result.dp_rank,
        "attn_tp_rank": result.attn_tp_rank,
        "device": result.device,
        "pid": result.pid,
        "status": result.status,
        "asserts": result.asserts,
        "errors": result.errors,
        "requests_started": result.requests_started,
        "requests_finished": result.requests_finished,
        "requests_cancelled": result.requests_cancelled,
        "operations": result.operations,
        "virtual_s": seconds(result.virtual_us),
        "digest": result.digest,
        "digest_partial": result.digest_partial,
        "step_plans": _step_plans_document(result.step_plans),
        "first_assert": _assert_document(result.first_assert),
        "first_error": _error_document(result.first_error),
        "first_finding": finding_document(result.first_finding),
        "findings": dict(result.findings),
        "faults_reached": dict(result.faults_reached),
        "checker_crashed": result.checker_crashed or None,
        "message": result.message or None,
    }


def _step_plans_document(plans: StepPlans | None) -> dict[str, Any] | None:
    if plans is None:
        return None
    return {
        "exchanges": plans.exchanges,
        "idle_beside_busy": plans.idle_beside_busy,
        "digest": plans.digest,
        "over": plans.over or None,
    }


def rule_and_pool(finding: dict[str, Any]) -> str:
    """`I1 in pool swa`; `I18` alone for a rule that is of no pool."""
    return f"{finding['rule']} in pool {finding['pool']}" if finding["pool"] else finding["rule"]


def finding_document(finding: Finding | None) -> dict[str, Any] | None:
    """A finding with the history of its page."""
    if finding is None:
        return None
    return {
        "rule": finding.rule,
        "pool": finding.pool,
        "operation": finding.operation,
        "noticed": finding.noticed,
        "virtual_s": seconds(finding.virtual_us),
        "page": finding.page,
        "message": finding.message,
        "history": list(finding.history),
    }


def _assert_document(assertion: Assertion | None) -> dict[str, Any] | None:
    if assertion is None:
        return None
    return {
        "operation": assertion.operation,
        "virtual_s": seconds(assertion.virtual_us),
        "where": assertion.where,
        "message": assertion.message,
    }


def _error_document(error: RankError | None) -> dict[str, Any] | None:
    if error is None:
        return None
    return {
        "operation": error.operation,
        "virtual_s": seconds(error.virtual_us),
        "kind": error.kind,
        "message": error.message,
        "traceback": error.traceback,
    }
