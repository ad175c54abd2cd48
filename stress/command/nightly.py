"""`kvstress nightly CONFIG --out DIR`: a matrix of configurations and seeds, and one canary that must fail."""

from __future__ import annotations

import contextlib
import traceback
from pathlib import Path
from typing import Any

import click
import msgspec

from stress.command.errors import infrastructure_errors, user_errors
from stress.command.execute import INTERRUPTED, execute, plan_workload, resolve_trees
from stress.command.options import RunOptions
from stress.config import ConfigError
from stress.config_limits import SEED_MAX
from stress.launch.contract import LAUNCHERS


@click.command()
@click.argument("config", metavar="CONFIG")
@click.option("--out", required=True, metavar="DIR", help="The nightly's folder, new or empty.")
@click.option(
    "--launcher",
    type=click.Choice(LAUNCHERS),
    default="ray",
    show_default=True,
    help="What starts the ranks.",
)
@click.option(
    "--history",
    metavar="FILE",
    help="Seeds that failed before; default: kvstress-failed-seeds.jsonl beside DIR.",
)
@click.option(
    "--seed",
    "seeds",
    type=click.IntRange(0, SEED_MAX),
    multiple=True,
    help="Instead of the matrix's seeds; may be repeated.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout; progress on stderr.")
def nightly(
    config: str, out: str, launcher: str, history: str | None, seeds: tuple[int, ...], as_json: bool
) -> int:
    """Run the matrix CONFIG, a name in configs/ or a path: first the seeds that failed before.

    DIR gets verdict.json, junit.xml, summary.md, and a run directory for each run.

    Exit 0: every run passed, and the canary failed. 1: a run failed. 2: usage or configuration. 3: unknown (a
    run showed nothing or was not made, the canary passed or was not run). 130: interrupted.
    """
    from stress.nightly import Nightly
    from stress.nightly_folder import make_folder
    from stress.nightly_history import FILE_NAME, History
    from stress.nightly_matrix import load_matrix
    from stress.verdict import EXIT_CODES

    matrix = load_matrix(config, seeds)
    _plan_all(matrix, launcher)
    kept = History(Path(history) if history is not None else Path(out).absolute().parent / FILE_NAME)
    kept.read()
    folder = make_folder(out)
    kept.check_writable()
    night = Nightly(matrix, folder, kept, launcher)

    def execute_one(planned: Any, run_dir: Path) -> tuple[dict[str, Any], bool]:
        return _execute_one(planned, run_dir, launcher)

    document = night.run(execute_one, lambda line: click.echo(f"nightly {line}", err=True))
    _show(document, folder, as_json)
    return INTERRUPTED if night.interrupted else EXIT_CODES[document["verdict"]]


def _plan_all(matrix: Any, launcher: str) -> None:
    """Plans each case once, so that a bad trace or target is one line before hours of runs. Raises ConfigError."""
    cases = [(case, matrix.seeds[0]) for case in matrix.cases]
    for case, seed in [(matrix.canary, matrix.canary_seed), *cases]:
        try:
            config = case.resolve(seed)
            plan_workload(config, case.overrides)
            with contextlib.suppress(*infrastructure_errors()):  # may be had when its run comes
                resolve_trees(config, list(case.arms), launcher)
        except user_errors() as error:
            raise ConfigError(f"run {case.name}: {error}") from None


def _execute_one(planned: Any, run_dir: Path, launcher: str) -> tuple[dict[str, Any], bool]:
    """One run, like `kvstress run`. Raises RunProblem for whatever keeps it from being made."""
    from stress.nightly import RunProblem

    case = planned.case
    options = RunOptions(overrides=case.overrides, launcher=launcher, seed=planned.seed, out=str(run_dir))
    try:
        outcome = execute(case.resolve(planned.seed), list(case.arms), options)
    except (*user_errors(), *infrastructure_errors()) as error:
        raise RunProblem(" ".join(str(error).split())) from error
    except Exception as error:  # a defect here must not cost the other runs of the night
        click.echo(traceback.format_exc(), err=True)
        raise RunProblem(f"Ended by {type(error).__name__}: {' '.join(str(error).split())}") from error
    return outcome.document, outcome.interrupted


def _show(document: dict[str, Any], folder: Path, as_json: bool) -> None:
    if as_json:
        click.echo(msgspec.json.encode(document))
        return
    for run in document["runs"]:
        if run["verdict"] != "pass":
            click.echo(f"{run['verdict']:8} {run['name']}: {run['reasons'][0] if run['reasons'] else ''}")
            click.echo(f"         {run['command']}")
    click.echo(f"verdict  {document['verdict']}")
    for reason in document["reasons"]:
        click.echo(f"  {reason}")
    click.echo(f"summary  {folder / 'summary.md'}")
