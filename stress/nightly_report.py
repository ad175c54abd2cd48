"""A nightly's folder for people: the canary, a table of the runs, and of those that did not pass why.

Reads verdict.json and, for first findings, the verdict.json of each run that failed; a run's folder that is gone
costs its finding alone. Made as well while the nightly goes on.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, TextIO

from rich.console import Console
from rich.table import Table
from rich.text import Text

from stress.nightly_verdict import is_unfinished
from stress.record import RunDirectory, RunDirectoryError
from stress.report_text import STYLES, WIDTH, print_first_finding, print_wrapped

TOLD_MAX = 20
_COLUMNS = ("run", "verdict", "findings", "asserts", "errors", "lost", "finished", "wall s")
_COUNTS = ("findings", "asserts", "errors", "ranks_lost", "requests_finished")


def print_nightly(document: dict[str, Any], folder: Path, stream: TextIO) -> None:
    """Prints the whole report. Raises KeyError and the like for a document that is not whole."""
    console = Console(file=stream, width=WIDTH, highlight=False, markup=False, soft_wrap=False)
    runs, canary = document["runs"], document["canary"]
    seeds = ", ".join(map(str, document["seeds"]))
    print_wrapped(
        console,
        f"nightly {document['nightly']}, seeds {seeds}, launcher {document['launcher']}, started "
        f"{document['started_utc']}, {document['wall_s']:.0f} s",
        0,
    )
    console.print()
    console.print(_table([canary, *runs]))
    bad = [run for run in [canary, *runs] if run["verdict"] != "pass" and run["run_dir"] is not None]
    bad.sort(key=lambda run: run["verdict"] != "fail")  # failures before what is unknown
    for run in bad[:TOLD_MAX]:
        _print_run(console, run, folder)
    if len(bad) > TOLD_MAX:
        console.print(f"\n{len(bad) - TOLD_MAX} more in {folder / 'summary.md'}", soft_wrap=True)
    _print_verdict(console, document, folder)


def _table(runs: list[dict[str, Any]]) -> Table:
    table = Table(box=None, pad_edge=False)
    for column in _COLUMNS:
        left = column in ("run", "verdict")
        table.add_column(
            column, justify="left" if left else "right", no_wrap=column != "run", overflow="fold"
        )
    for run in runs:
        made = run["run_dir"] is not None
        counts = [str(run["totals"][key]) for key in _COUNTS] if run["raw_verdict"] else [""] * len(_COUNTS)
        verdict = Text(run["verdict"] if made else "not run", STYLES.get(run["verdict"], ""))
        name = f"{run['name']} (failed before)" if run["kept"] else run["name"]
        table.add_row(Text(name), verdict, *counts, f"{run['wall_s']:.1f}" if made else "")
    return table


def _print_run(console: Console, run: dict[str, Any], folder: Path) -> None:
    console.print()
    console.print(Text(f"{run['name']}: {run['verdict']}", STYLES.get(run["verdict"], "")))
    for reason in run["reasons"]:
        print_wrapped(console, reason, 2)
    for arm, entry in _arms(run, folder).items():
        print_first_finding(console, arm, entry)
    # A command is there to be copied: it is never broken into lines.
    console.print(f"  {run['command']}", soft_wrap=True)


def _arms(run: dict[str, Any], folder: Path) -> dict[str, Any]:
    """The run's own arms; none where its folder is gone or can't be read."""
    if run["run_dir"] is None:
        return {}
    try:
        return RunDirectory(folder / run["run_dir"]).read_verdict()["arms"]
    except (KeyError, RunDirectoryError):
        return {}


def _print_verdict(console: Console, document: dict[str, Any], folder: Path) -> None:
    console.print()
    verdict = Text("verdict  ")
    verdict.append(document["verdict"], style=STYLES.get(document["verdict"], ""))
    console.print(verdict)
    for reason in document["reasons"]:
        print_wrapped(console, reason, 2)
    if problem := document["history"]["problem"]:
        print_wrapped(console, f"The history was not kept: {problem}", 2)
    if is_unfinished(document):
        for run in [document["canary"], *document["runs"]]:
            if run["run_dir"] is None and (folder / run["name"]).is_dir():
                console.print(f"under way  {folder / run['name']}", soft_wrap=True)
    console.print(f"nightly folder  {folder}", soft_wrap=True)
