"""`kvstress compare RUN_A RUN_B`: an arm of one earlier run held against an arm of another, nothing is started.

Reads verdict.json, manifest.json, ranks/ and ops/ of both and makes the document of a live compare; nothing is written
into either. Runs of other requests are refused; what else differs is said in `compare.differences`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from stress.arm_layout import arm_layout
from stress.config import Config, ConfigError
from stress.record import RunDirectory, RunDirectoryError


class RunUnfinished(RuntimeError):
    """A run has no result to compare. One line: what, where, the cure."""


class Side(msgspec.Struct, frozen=True, kw_only=True):
    """One of the two runs, and the arm that it is here for."""

    given: str
    run: RunDirectory
    document: dict[str, Any]
    manifest: dict[str, Any]
    config: Config
    arm: str

    @property
    def entry(self) -> dict[str, Any]:
        return self.document["arms"][self.arm]

    def index(self, rank: dict[str, Any]) -> int:
        """The place in its arm of a rank's entry."""
        return rank["dp_rank"] * self.config.layout.attn_tp_size + rank["attn_tp_rank"]

    def asked(self) -> dict[str, Any]:
        """The manifest as far as its requests go: with the layout that the arm had on its ranks."""
        layout = arm_layout(self.config, self.arm)
        config = self.manifest["config"]
        own = {**config["layout"], "tp_size": layout.tp_size, "dp_size": layout.dp_size}
        return {**self.manifest, "config": {**config, "layout": own}}


def compare_runs(base_dir: str, test_dir: str, base_arm: str | None, test_arm: str | None) -> dict[str, Any]:
    """The document. Raises ConfigError, RunDirectoryError, and RunUnfinished where a run shows nothing yet."""
    try:
        base, test = _side(base_dir, base_arm, "--base"), _side(test_dir, test_arm, "--test")
        _require_same_requests(base, test)
        return _document(base, test)
    except KeyError as missing:
        raise RunDirectoryError(
            f"{base_dir}, {test_dir}: a verdict.json or manifest.json has no {missing}; it is not whole, run again"
        ) from None
    except (AttributeError, IndexError, TypeError) as error:
        raise RunDirectoryError(
            f"{base_dir}, {test_dir}: {error}; a verdict.json or manifest.json was changed after the run, run again"
        ) from None


def _side(given: str, arm: str | None, option: str) -> Side:
    from stress.command.unfinished import is_unfinished
    from stress.manifest import read_manifest
    from stress.verdict import SCHEMA

    RunDirectory.open(given)
    run = RunDirectory(Path(given).resolve())  # runs/latest is another run tomorrow
    if is_unfinished(run):
        raise RunUnfinished(
            f"{given}: the run goes on, or was killed; kvstress report {given} shows what it has written"
        )
    document = run.read_verdict()
    if document.get("schema") != SCHEMA or not isinstance(document.get("arms"), dict):
        raise RunDirectoryError(f"{given}/verdict.json: no run of schema {SCHEMA}; name a run directory")
    manifest, config = read_manifest(run.path)
    arms = document["arms"]
    if arm is None and len(arms) != 1:
        raise ConfigError(f"{given}: holds arms {', '.join(arms)}; choose one with {option} ARM")
    if arm is not None and arm not in arms:
        raise ConfigError(f"{option} {arm}: {given} has no such arm; choose {', '.join(arms)}")
    chosen = arm or next(iter(arms))
    if not arms[chosen]["ranks"]:
        raise RunUnfinished(f"{given}: arm {chosen} was not run; run it again")
    return Side(given=given, run=run, document=document, manifest=manifest, config=config, arm=chosen)


def _require_same_requests(base: Side, test: Side) -> None:
    from stress.same_requests import other_requests

    difference = other_requests(base.asked(), test.asked())
    if difference is not None:
        key, ours, theirs = difference
        raise ConfigError(
            f"{base.given} and {test.given}: the runs had other requests, {key} is {ours!r} and {theirs!r}; run "
            "one of them again"
        )


def _document(base: Side, test: Side) -> dict[str, Any]:
    from stress.compare import compare_arms, second_name
    from stress.divergence import divergence_of
    from stress.operation_file import read_arm
    from stress.same_requests import other_settings
    from stress.verdict import SCHEMA, run_digest, worst
    from stress.verdict_coverage import coverage_of

    sides = {base.arm: base, second_name(base.arm, test.arm): test}
    arms = {name: side.entry for name, side in sides.items()}
    launchers = dict.fromkeys(side.document["layout"]["launcher"] for side in sides.values())
    document = {
        "schema": SCHEMA,
        "verdict": worst([arm["verdict"] for arm in arms.values()]),
        "as_expected": all(arm["as_expected"] for arm in arms.values()),
        "reasons": [reason for name, side in sides.items() for reason in _reasons(name, side)],
        "config": base.document["config"],
        "seed": base.document["seed"],
        "digest": run_digest(
            {
                name: [
                    (side.index(rank), rank["digest"], rank["digest_partial"]) for rank in side.entry["ranks"]
                ]
                for name, side in sides.items()
            }
        ),
        "layout": {**base.document["layout"], "launcher": " and ".join(launchers)},
        "arms": arms,
        "coverage": coverage_of([(side.config, _results(side)) for side in sides.values()]),
        "divergence": None,
        "workload": base.document.get("workload"),
    }
    recorded = {name: read_arm(side.run.path, side.arm) for name, side in sides.items()}
    document["divergence"] = divergence_of(*sides, recorded, arms)
    document["compare"] = {
        **compare_arms(document, *sides),
        "runs": {name: str(side.run.path) for name, side in sides.items()},
        "differences": other_settings(base.manifest, test.manifest),
    }
    return document


def _reasons(name: str, side: Side) -> list[str]:
    """What the run's verdict said of this arm, under its name here, and of the run as a whole."""
    reasons = []
    for reason in side.document["reasons"]:
        if reason.startswith((f"Arm {side.arm}:", f"Arm {side.arm} ")):
            reasons.append(f"Arm {name}{reason[len(f'Arm {side.arm}') :]}")
        elif not reason.startswith("Arm "):
            reasons.append(f"Run of {name}: {reason}")
    return reasons


def _results(side: Side) -> list[Any]:
    """The results of the arm's ranks, as far as they were written by the ranks themselves."""
    told = [side.run.read_rank(side.arm, rank["rank"]).result for rank in side.entry["ranks"]]
    return [result for result in told if result is not None]
