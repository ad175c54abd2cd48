"""From the runs of a nightly to its verdict. Pure functions; nothing is read or written.

The verdict is the worst of all runs, fail > unknown > pass, with the canary turned round: a canary that failed
by a finding or an assert passes, and every other canary is unknown, for then a pass of the others shows
nothing. A run that was not made is unknown. A lost rank never counts as a pass, in the canary neither.
"""

from __future__ import annotations

import shlex
from typing import Any

import msgspec

from stress.nightly_matrix import Case
from stress.verdict import worst

SCHEMA = 1
NOT_RUN = "It was not run."
INTERRUPTED = "The nightly was interrupted before its end."
UNDER_WAY = "The nightly goes on, or was killed."


class Planned(msgspec.Struct, frozen=True, kw_only=True):
    """A run to make. `kept`: it failed before."""

    case: Case
    seed: int
    kept: bool = False

    @property
    def name(self) -> str:
        return self.case.name if self.case.name == "canary" else f"{self.case.name}-seed{self.seed}"

    def command(self, launcher: str) -> str:
        """What a shell runs to make it again."""
        arms = [word for arm in self.case.arms for word in ("--arm", arm)]
        settings = [word for override in self.case.overrides for word in ("--set", override)]
        swarm = ["--swarm"] if self.case.swarm else []
        tail = [*swarm, "--seed", str(self.seed), "--launcher", launcher]
        return shlex.join(["kvstress", "run", self.case.config, *arms, *settings, *tail])


class Made(msgspec.Struct, frozen=True, kw_only=True):
    """A run that was made, or tried: its verdict document, or the problem that left none."""

    document: dict[str, Any] | None = None
    problem: str = ""
    started_utc: str = ""
    wall_s: float = 0.0
    # By "ARM-RANK": to the last line of the rank's file, from its arm's start.
    rank_wall_s: dict[str, float] = {}


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """A run's part in the nightly: its verdict there, and why."""

    planned: Planned
    made: Made | None
    verdict: str
    reasons: list[str]


def run_outcome(planned: Planned, made: Made | None) -> Outcome:
    """The outcome of a run of the matrix."""
    if made is None or made.document is None:
        reasons = [made.problem if made else NOT_RUN]
        return Outcome(planned=planned, made=made, verdict="unknown", reasons=reasons)
    verdict, reasons = made.document["verdict"], list(made.document["reasons"])
    absent = absent_ranks(made.document)
    if verdict == "pass" and absent:
        verdict, reasons = "unknown", [*reasons, *absent]
    return Outcome(planned=planned, made=made, verdict=verdict, reasons=reasons)


def canary_outcome(planned: Planned, made: Made | None) -> Outcome:
    """The outcome of the canary: pass where it failed as it must, else unknown."""
    if made is None or made.document is None:
        reasons = [
            f"The canary was not run: {made.problem}" if made and made.problem else "The canary was not run."
        ]
        return Outcome(planned=planned, made=made, verdict="unknown", reasons=reasons)
    document = made.document
    absent = absent_ranks(document)
    if document["verdict"] == "pass":
        reasons = [
            "The canary passed: a run that must fail did not, so the passes of this night show nothing."
        ]
    elif document["verdict"] == "unknown":
        reasons = ["The canary showed nothing.", *document["reasons"]]
    elif absent:
        reasons = ["The canary failed, but not on whole ranks.", *absent]
    elif not document["as_expected"]:
        reasons = ["The canary failed by errors alone: no finding and no assert.", *document["reasons"]]
    else:
        reasons = ["The canary failed, as it must.", *document["reasons"]]
        return Outcome(planned=planned, made=made, verdict="pass", reasons=reasons)
    return Outcome(planned=planned, made=made, verdict="unknown", reasons=reasons)


def absent_ranks(document: dict[str, Any]) -> list[str]:
    """A sentence for each arm that a rank's whole result is missing from."""
    reasons = []
    for arm, entry in document["arms"].items():
        gone = [str(rank["rank"]) for rank in entry["ranks"] if is_absent(rank)]
        planned = entry.get("ranks_planned", document["layout"]["ranks"])
        never = planned - len(entry["ranks"])
        if gone:
            reasons.append(f"Arm {arm}: no whole result of rank {', '.join(gone)}.")
        if never > 0:
            reasons.append(f"Arm {arm}: {never} of {planned} ranks gave no result.")
    return reasons


def is_absent(rank: dict[str, Any]) -> bool:
    """Whether a rank was lost or stopped, or lost its check."""
    return rank["status"] in ("lost", "stopped") or bool(rank["checker_crashed"])


def nightly_document(
    name: str,
    launcher: str,
    seeds: tuple[int, ...],
    canary: Outcome,
    runs: list[Outcome],
    *,
    history: dict[str, Any],
    started_utc: str,
    wall_s: float,
    interrupted: bool = False,
) -> dict[str, Any]:
    """The nightly's `verdict.json`, schema 1: "kind" is "nightly"; `canary` and each of `runs` is one run."""
    verdicts = [outcome.verdict for outcome in runs]
    verdict = "unknown" if interrupted else worst([*verdicts, canary.verdict])
    counts = {each: verdicts.count(each) for each in ("pass", "fail", "unknown")}
    told = ", ".join(f"{count} {each}" for each, count in counts.items() if count)
    if interrupted:
        reasons = [INTERRUPTED]
    else:
        reasons = [] if all(outcome.made for outcome in [canary, *runs]) else [UNDER_WAY]
    made = "1 run" if len(runs) == 1 else f"{len(runs)} runs"
    reasons += [f"{made}: {told}.", *canary.reasons[: 1 if canary.verdict == "pass" else 2]]
    return {
        "schema": SCHEMA,
        "kind": "nightly",
        "verdict": verdict,
        "reasons": reasons,
        "nightly": name,
        "launcher": launcher,
        "seeds": list(seeds),
        "history": history,
        "started_utc": started_utc,
        "wall_s": round(wall_s, 3),
        "counts": counts,
        "canary": _entry(canary, launcher),
        "runs": [_entry(outcome, launcher) for outcome in runs],
    }


def is_unfinished(document: dict[str, Any]) -> bool:
    """Whether a nightly's document was written while runs were still to be made, and nobody interrupted it."""
    return UNDER_WAY in document["reasons"]


def _entry(outcome: Outcome, launcher: str) -> dict[str, Any]:
    planned, made = outcome.planned, outcome.made
    document = made.document if made else None
    return {
        "name": planned.name,
        "verdict": outcome.verdict,
        "raw_verdict": document["verdict"] if document else None,
        "reasons": outcome.reasons,
        "config": planned.case.config,
        "arms": list(planned.case.arms),
        "set": list(planned.case.overrides),
        "seed": planned.seed,
        "kept": planned.kept,
        "run_dir": planned.name if made else None,
        "digest": document["digest"] if document else None,
        "totals": totals(document),
        "wall_s": round(made.wall_s, 3) if made else 0.0,
        "command": planned.command(launcher),
    }


def totals(document: dict[str, Any] | None) -> dict[str, int]:
    """Sums over the arms of a run."""
    arms = list(document["arms"].values()) if document else []
    summed = {
        key: sum(arm["totals"][key] for arm in arms)
        for key in ("ranks", "findings", "asserts", "errors", "requests_finished", "requests_cancelled")
    }
    return summed | {"ranks_lost": sum(is_absent(rank) for arm in arms for rank in arm["ranks"])}
