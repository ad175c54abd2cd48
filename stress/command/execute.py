"""Runs arms and writes down what came of it: run directory, manifest, ranks, verdict.

The one way from a configuration to a verdict document, for `run` and `compare`. The workload is planned here
once before any rank starts, so that a bad trace is a user's one line and not the loss of every rank.
An interrupted run, and one whose ranks could not be started, still get their verdict.json.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import msgspec

from stress.command.errors import infrastructure_errors
from stress.command.options import RunOptions
from stress.command.streams import remark
from stress.config import Config, ConfigError, blame

INTERRUPTED = 130
UNKNOWN = 3
INTERRUPTED_EARLY = "The run was interrupted before its end."


Finish = Callable[[dict[str, Any]], None]
"""Completes the verdict document before it is written: compare adds its entry."""


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """A run that was made: its document, where it lies, and whether it was interrupted."""

    document: dict[str, Any]
    run_dir: Path | None = None  # None: nowhere
    interrupted: bool = False


class Prepared(msgspec.Struct, frozen=True, kw_only=True):
    """What is known before any rank is started: the configuration, its planned workload, the arms' trees."""

    config: Config
    planned: dict[str, Any]
    trees: dict[str, str]


def execute(
    config: Config,
    arms: list[str],
    options: RunOptions,
    finish: Finish | None = None,
    prepared: Prepared | None = None,
) -> Outcome:
    """Runs the arms, twice with --verify-determinism.

    `prepared`: what was planned for `config` already.
    """
    from stress.command.run_record import VerdictUnwritten
    from stress.record import RunDirectory, RunWriteError

    planned = prepared.planned if prepared else plan_workload(config, options.overrides)
    trees = prepared.trees if prepared else resolve_trees(config, arms, options.launcher)
    outcome = _execute_once(config, arms, options, options.out, planned, trees, finish)
    if not options.verify_determinism or outcome.interrupted:
        return outcome
    again = _execute_once(config, arms, options, str(outcome.run_dir / "again"), planned, trees, finish)
    digests = [outcome.document["digest"], again.document["digest"]]
    equal = digests[0] == digests[1] and not again.interrupted
    for number, digest in enumerate(digests, start=1):
        click.echo(f"digest of run {number}: {digest}", err=True)
    outcome.document["determinism"] = {"digests": digests, "equal": equal}
    if not equal:
        outcome.document["reasons"].append("Two runs of this configuration and seed gave different digests.")
    try:
        RunDirectory.open(outcome.run_dir).write_verdict(outcome.document)
    except RunWriteError as error:
        raise VerdictUnwritten(str(error), outcome.document) from error
    return msgspec.structs.replace(outcome, interrupted=again.interrupted)


def plan_workload(config: Config, overrides: tuple[str, ...] = ()) -> dict[str, Any]:
    """What an arm will be asked: {"trace", "requests_planned", "sessions", "replays", ...}, see Plan.contents.

    Raises TraceError or WorkloadError, and ConfigError where the FULL pool can't hold a request; each names the
    overrides that it is about.
    """
    from stress.config_pools import check_full_pool
    from stress.workload.errors import WorkloadError
    from stress.workload.plan import plan_of

    try:
        plan = plan_of(config)
        check_full_pool(config, zip(plan.prompt_tokens.tolist(), plan.output_tokens.tolist(), strict=True))
    except (ConfigError, WorkloadError) as error:
        raise type(error)(blame(str(error), overrides)) from None
    return {"trace": config.workload.trace, **plan.contents()}


def _divergence(document: dict[str, Any], arms: list[str], run_dir: Path) -> dict[str, Any] | None:
    """Where the run's two arms part, as far as their recorded operations tell."""
    from stress.divergence import divergence_of
    from stress.operation_file import read_arm

    if len(arms) != 2:
        return None
    recorded = {arm: read_arm(run_dir, arm) for arm in arms}
    return divergence_of(arms[0], arms[1], recorded, document["arms"])


def resolve_trees(config: Config, arms: list[str], launcher: str) -> dict[str, str]:
    """The folder of each arm that names a real engine, fetched where it is not there yet, which is told on stderr.

    Raises TargetError and TargetUnavailable; ConfigError where one process would need two trees or a backend, or a tree
    has no road for what is to be injected.
    """
    from stress.engine.sglang.tree_source import refuse_unfit
    from stress.engine.vllm.tree_source import refuse_unfit_run
    from stress.target.name import parse_target
    from stress.target.store import resolve

    if launcher == "inline" and config.layout.backend == "nccl":
        raise ConfigError(
            "--launcher inline: layout.backend is nccl, and ranks in one process exchange over nothing; "
            "use --launcher local, or --set layout.backend=auto"
        )
    trees = {}
    for arm in arms:
        name = config.arms.record(arm).target
        target = parse_target(name)
        if target.kind != "reference":
            root = resolve(name, remark)
            if target.project == "sglang":
                refuse_unfit(root, target)
            elif target.mode == "scheduler":
                refuse_unfit_run(root, target, config)
            trees[arm] = str(root)
    if launcher == "inline" and len(set(trees.values())) > 1:
        raise ConfigError(
            f"--launcher inline: arms {', '.join(trees)} need trees of their own and a process imports one; "
            "use --launcher local"
        )
    return trees


def _execute_once(
    config: Config,
    arms: list[str],
    options: RunOptions,
    out: str | None,
    planned: dict[str, Any],
    trees: dict[str, str],
    finish: Finish | None,
) -> Outcome:
    from stress.command.run_record import RunRecord
    from stress.manifest import build_manifest
    from stress.record import RunDirectory
    from stress.verdict import make_verdict

    run = RunDirectory.create(out, config.name)
    manifest = build_manifest(
        config.to_dict(), seed=config.seed, launcher=options.launcher, devices=[config.layout.device]
    )
    manifest["workload"] = planned

    def document_of(results: dict[str, Any], ended_early: str) -> dict[str, Any]:
        document = make_verdict(
            config,
            results,
            arms=arms,
            launcher=options.launcher,
            ended_early=ended_early,
            workload=planned,
        )
        if not ended_early:
            document["divergence"] = _divergence(document, arms, run.path)
        if finish is not None:
            finish(document)
        return document

    record = RunRecord(run, manifest, document_of)
    try:
        record.begin()
        results, ended_early, interrupted = _gather(
            config, arms, options, record, planned["requests_planned"], trees
        )
    except KeyboardInterrupt:  # no rank was started yet
        results, ended_early, interrupted = {}, INTERRUPTED_EARLY, True
    try:
        document = record.end(results, ended_early)
    except KeyboardInterrupt:  # the only one: further signals are ignored
        interrupted = True
        document = record.end(results, INTERRUPTED_EARLY)
    return Outcome(document=document, run_dir=run.path, interrupted=interrupted)


def _gather(
    config: Config, arms: list[str], options: RunOptions, record: Any, requests: int, trees: dict[str, str]
) -> tuple[dict[str, Any], str, bool]:
    """The results by arm, why the run was ended early or "", and whether the user did. No rank is alive then."""
    from stress.command.progress import make_progress
    from stress.coordinator import ArmsBroken, Interrupted, run_arms
    from stress.launch.contract import make_launcher

    launcher = None
    results: dict[str, Any] = {}  # also where the progress fails behind them
    try:
        launcher = make_launcher(options.launcher, config)
        with make_progress(requests) as progress:
            results = run_arms(
                config, arms, launcher, record.run, progress, trees=trees, on_interrupt=record.interrupt
            )
        return results, "", False
    except (Interrupted, KeyboardInterrupt) as stopped:
        return getattr(stopped, "results", {}), INTERRUPTED_EARLY, True
    except ArmsBroken as broken:
        results, unstarted, error = broken.results, broken.unstarted, broken.__cause__
    except infrastructure_errors() as lacking:
        unstarted, error = [arm for arm in arms if arm not in results], lacking
    except Exception as defect:
        unstarted, error = [], defect
    finally:
        if launcher is not None:
            launcher.close()
    # Whoever waits for a job reads verdict.json, so these ends are written down like any other.
    why = " ".join(str(error).split())
    if not unstarted:
        record.end(results, f"The run was ended by an error: {type(error).__name__}: {why}")
        raise error
    ended_early = f"Arm{'s' * (len(unstarted) > 1)} {', '.join(unstarted)} could not be started: {why}"
    click.echo(f"kvstress: {ended_early}", err=True)
    return results, ended_early, False
