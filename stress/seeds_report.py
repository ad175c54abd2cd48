"""The sum over seeds for people: a line a seed with its first finding, then how often and with what bounds.

Reads verdict.json, and which seeds have a folder; made as well while the seeds go on.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, TextIO

from rich.console import Console
from rich.table import Table
from rich.text import Text

from stress.report_text import STYLES, WIDTH, print_wrapped


def print_seeds(document: dict[str, Any], folder: Path, stream: TextIO) -> None:
    """Prints the whole report. Raises KeyError and the like for a document that is not whole."""
    console = Console(file=stream, width=WIDTH, highlight=False, markup=False, soft_wrap=False)
    seeds = [entry["seed"] for entry in document["seeds"]]
    span = f"seeds {seeds[0]}-{seeds[-1]}" if len(seeds) > 1 else f"seed {seeds[0]}"
    console.print(f"config {document['config']}, {span}, launcher {document['launcher']}")
    console.print()
    console.print(_table(document, folder))
    console.print()
    line = Text("verdict  ")
    line.append(document["verdict"], style=STYLES.get(document["verdict"], ""))
    line.append(" (as expected)" if document["as_expected"] else " (not as expected)")
    console.print(line)
    for reason in document["reasons"]:
        print_wrapped(console, reason, 2)
    if "compare" in document:
        compared = document["compare"]
        outcome = compared["outcome"].replace("_", " ")
        k, n = (document["k_of_n"]["reproduced"][key] for key in ("k", "n"))
        shown = f" (reproduced on {k} of {n} {'seed' if n == 1 else 'seeds'})" if n else ""
        console.print(f"compare  base {compared['base']}, test {compared['test']}: {outcome}{shown}")
    console.print(f"folder  {folder}", overflow="ignore", no_wrap=True, crop=False)


def _table(document: dict[str, Any], folder: Path) -> Table:
    compared = "compare" in document
    table = Table(box=None, pad_edge=False)
    table.add_column("seed", justify="right", no_wrap=True)
    for arm in document["arms"]:
        table.add_column(Text(arm), no_wrap=True)
    if compared:
        table.add_column("outcome", no_wrap=True)
    table.add_column("first finding", overflow="fold")
    for entry in document["seeds"]:
        verdicts = [entry["arms"].get(arm, "") for arm in document["arms"]]
        cells = [Text(verdict, STYLES.get(verdict, "")) for verdict in verdicts]
        if compared:
            cells.append(Text((entry["outcome"] or "").replace("_", " ")))
        told = _unmade(entry, folder) if entry["run_dir"] is None else _finding(entry["first_finding"])
        table.add_row(str(entry["seed"]), *cells, Text(told))
    return table


def _unmade(entry: dict[str, Any], folder: Path) -> str:
    """A seed that was begun has left what its ranks had written: in a run that goes on, or was killed."""
    begun = folder / f"seed-{entry['seed']}"
    return f"not over, see {begun.name}" if begun.is_dir() else "not run"


def _finding(finding: dict[str, Any] | None) -> str:
    if finding is None:
        return ""
    where = f" in {finding['pool']}" if finding["pool"] else ""
    return f"{finding['rule']}{where}, rank {finding['rank']}, operation {finding['operation']}"
