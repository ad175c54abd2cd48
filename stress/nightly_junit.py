"""The test cases of a nightly: one a rank and arm of each run, one for the whole arm, one for the canary.

A rank's finding, assert or error is a failure, with the page's history; a lost rank, a crashed check or a run
that was not made is an error, never a skipped test. The case of the whole arm holds what no single rank is to
blame for, such as a mark that was never reached. Names hold no verdict, so a test is the same every night.
"""

from __future__ import annotations

import platform
from typing import Any

from stress.junit import JunitCase, JunitSuite, Problem
from stress.nightly_verdict import Outcome, is_absent
from stress.verdict_rank import rule_and_pool


def suites_of(canary: Outcome, runs: list[Outcome], launcher: str, started_utc: str) -> list[JunitSuite]:
    """A suite a run, the canary's first."""
    hostname = platform.node()
    return [
        _suite(outcome, cases, launcher, started_utc, hostname)
        for outcome, cases in [(canary, [_canary_case(canary)]), *((run, _run_cases(run)) for run in runs)]
    ]


def _suite(
    outcome: Outcome, cases: list[JunitCase], launcher: str, started_utc: str, hostname: str
) -> JunitSuite:
    made = outcome.made
    return JunitSuite(
        name=outcome.planned.name,
        cases=cases,
        started_utc=made.started_utc if made else started_utc,
        hostname=hostname,
        time_s=made.wall_s if made else 0.0,
        properties={
            "verdict": outcome.verdict,
            "seed": str(outcome.planned.seed),
            "kept": str(outcome.planned.kept).lower(),
            "command": outcome.planned.command(launcher),
        },
    )


def _canary_case(canary: Outcome) -> JunitCase:
    text = "\n".join(canary.reasons)
    problem = None
    if canary.verdict != "pass":
        problem = Problem(kind="error", type="canary", message=canary.reasons[0], text=text)
    return JunitCase(
        classname="kvstress.canary",
        name=f"{canary.planned.case.config} arm {canary.planned.case.arms[0]} fails",
        time_s=canary.made.wall_s if canary.made else 0.0,
        problem=problem,
        output="" if problem else text,
    )


def _run_cases(outcome: Outcome) -> list[JunitCase]:
    document = outcome.made.document if outcome.made else None
    cases = []
    for arm in outcome.planned.case.arms:
        entry = document["arms"].get(arm) if document else None
        ranks = [_rank_case(outcome, arm, rank) for rank in entry["ranks"]] if entry else []
        cases += ranks
        cases.append(_arm_case(outcome, arm, entry, any(case.problem for case in ranks)))
    return cases


def _named(outcome: Outcome, what: str, **fields: Any) -> JunitCase:
    classname = f"kvstress.{outcome.planned.case.name.replace('.', '_')}"  # a dot would make a package of it
    return JunitCase(classname=classname, name=f"seed {outcome.planned.seed}, {what}", **fields)


def _rank_case(outcome: Outcome, arm: str, rank: dict[str, Any]) -> JunitCase:
    wall_s = outcome.made.rank_wall_s.get(f"{arm}-{rank['rank']}", 0.0)
    output = (
        f"status {rank['status']}, {rank['requests_finished']} requests finished, "
        f"{rank['requests_cancelled']} cancelled, {rank['operations']} operations, virtual {rank['virtual_s']} s"
    )
    name = f"arm {arm}, rank {rank['rank']}"
    return _named(outcome, name, time_s=wall_s, problem=rank_problem(rank), output=output)


def _arm_case(outcome: Outcome, arm: str, entry: dict[str, Any] | None, told: bool) -> JunitCase:
    """What keeps the arm from having shown anything, unless a rank's case has told it."""
    arms = outcome.made.document["arms"].values() if entry else []
    ended_early = outcome.verdict == "unknown" and all(each["verdict"] == "pass" for each in arms)
    problem = None
    if not told and (entry is None or entry["verdict"] == "unknown" or ended_early):
        own = [reason for reason in outcome.reasons if reason.startswith(f"Arm {arm}:")]
        reasons = own or outcome.reasons
        problem = Problem(kind="error", type="unknown", message=reasons[0], text="\n".join(reasons))
    return _named(outcome, f"arm {arm}, all ranks", problem=problem)


def rank_problem(rank: dict[str, Any]) -> Problem | None:
    """What is wrong with a rank, None where nothing is. A finding comes before an assert before an error."""
    finding, assertion, error = rank["first_finding"], rank["first_assert"], rank["first_error"]
    findings = sum(rank["findings"].values())
    text = problem_text(rank)
    if findings or finding:
        told = finding_line(finding) if finding else f"{findings} findings"
        kind = f"finding {finding['rule'] if finding else ''}".strip()
        return Problem(kind="failure", type=kind, message=told, text=text)
    if rank["asserts"]:
        told = f"{assertion['where']}: {assertion['message']}" if assertion else f"{rank['asserts']} asserts"
        return Problem(kind="failure", type="assert", message=told, text=text)
    if rank["errors"]:
        told = f"{error['kind']}: {error['message']}" if error else f"{rank['errors']} errors"
        return Problem(kind="failure", type="error", message=told, text=text)
    if is_absent(rank) or rank["status"] != "finished":
        told = rank["message"] or (rank["checker_crashed"] or "no result").strip().splitlines()[-1]
        kind = "checker" if rank["checker_crashed"] else rank["status"]
        return Problem(kind="error", type=kind, message=told, text=text)
    return None


def finding_line(finding: dict[str, Any]) -> str:
    """`I1 in pool swa, operation 40, 1.2 s: page 0 returned 391 times`."""
    where = f"{rule_and_pool(finding)}, operation {finding['operation']}"
    return f"{where}, {finding['virtual_s']} s: {finding['message']}"


def problem_text(rank: dict[str, Any]) -> str:
    """All that a rank told, in full, a line a call of the page's history."""
    lines = []
    if finding := rank["first_finding"]:
        lines += [finding_line(finding), *(f"  {line}" for line in finding["history"])]
    lines += [f"rule {rule}: {count} findings" for rule, count in rank["findings"].items() if count]
    if assertion := rank["first_assert"]:
        where = f"{assertion['where']}, operation {assertion['operation']}, {assertion['virtual_s']} s"
        lines.append(f"assert in {where}: {assertion['message']} ({rank['asserts']} in all)")
    if error := rank["first_error"]:
        where = f"operation {error['operation']}, {error['virtual_s']} s"
        lines += [f"error at {where}: {error['kind']}: {error['message']} ({rank['errors']} in all)"]
        lines += [error["traceback"]] if error["traceback"] else []
    if rank["status"] != "finished":
        lines.append(f"status {rank['status']}{': ' + rank['message'] if rank['message'] else ''}")
    if rank["checker_crashed"]:
        lines.append(rank["checker_crashed"])
    return "\n".join(lines)
