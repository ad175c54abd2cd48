"""A verdict document for people: 100 columns, a line a rank, the first finding with its page's history, why.

Reads the document alone, so that a report of an old run and the end of a new one are the same text.
"""

from __future__ import annotations

import sys
import textwrap
from pathlib import Path
from typing import Any, TextIO

from rich.console import Console
from rich.table import Table
from rich.text import Text

from stress.verdict_rank import rule_and_pool

WIDTH = 100
HISTORY_LINES = 12
STYLES = {"pass": "green", "fail": "red", "unknown": "yellow"}
_RIGHT = {"asserts", "errors", "findings", "finished", "cancelled", "virtual s"}


def print_report(document: dict[str, Any], run_dir: Path | None, stream: TextIO | None = None) -> None:
    """Prints the whole report. `run_dir`: where it lies; None where it was not kept."""
    console = Console(file=stream or sys.stdout, width=WIDTH, highlight=False, markup=False, soft_wrap=False)
    layout = document["layout"]
    console.print(
        f"config {document['config']}, seed {document['seed']}, {layout['ranks']} ranks on "
        f"{layout['device']} (tp {layout['tp_size']}, dp {layout['dp_size']}), launcher {layout['launcher']}"
    )
    console.print()
    console.print(_ranks(document))
    for arm, entry in document["arms"].items():
        print_first_finding(console, arm, entry)
    _print_divergence(console, document.get("divergence"))
    _print_verdict(console, document)
    if run_dir is not None:
        _print_path(console, "run directory", run_dir)


def _ranks(document: dict[str, Any]) -> Table:
    table = Table(box=None, pad_edge=False)
    columns = ("arm", "rank", "status", "asserts", "errors", "findings", "finished", "cancelled", "virtual s")
    for column in columns:
        table.add_column(column, justify="right" if column in _RIGHT else "left", no_wrap=True)
    for arm, entry in document["arms"].items():
        for rank in entry["ranks"]:
            numbers = (
                rank["asserts"],
                rank["errors"],
                sum(rank["findings"].values()),
                rank["requests_finished"],
                rank["requests_cancelled"],
            )
            cells = [arm, str(rank["rank"]), rank["status"], *map(str, numbers), f"{rank['virtual_s']:.1f}"]
            table.add_row(*(Text(cell) for cell in cells))
    return table


def print_first_finding(console: Console, arm: str, entry: dict[str, Any]) -> None:
    """The earliest finding of an arm, and the first error, which may explain it."""
    found = [(rank["first_finding"], rank) for rank in entry["ranks"] if rank["first_finding"]]
    if found:
        finding, rank = min(found, key=lambda pair: (pair[0]["virtual_s"], pair[1]["rank"]))
        console.print()
        console.print(
            f"first finding of {arm}: {rule_and_pool(finding)}, rank {rank['rank']}, "
            f"operation {finding['operation']}, {finding['virtual_s']} s"
        )
        print_wrapped(console, finding["message"], 2)
        history = finding["history"]
        if len(history) > HISTORY_LINES:
            console.print(f"  ... {len(history) - HISTORY_LINES} earlier")
        for line in history[-HISTORY_LINES:]:
            print_wrapped(console, line, 4)
    erring = [rank for rank in entry["ranks"] if rank["first_error"]]
    if erring:
        error = erring[0]["first_error"]
        console.print()
        console.print(f"first error of {arm}: rank {erring[0]['rank']}, operation {error['operation']}")
        print_wrapped(console, f"{error['kind']}: {error['message']}", 2)


def _print_divergence(console: Console, divergence: dict[str, Any] | None) -> None:
    """Where the two arms of a run stopped deciding alike, and why."""
    if not divergence:
        return
    console.print()
    others = divergence["ranks"] - 1
    more = f"; {others} more {'rank parts' if others == 1 else 'ranks part'} later" if others else ""
    rank, test_rank = divergence["rank"], divergence.get("test_rank", divergence["rank"])
    where = (
        f"rank {rank}" if test_rank == rank else f"rank {rank} ({list(divergence['arms'])[1]}: {test_rank})"
    )
    console.print(f"the arms part at operation {divergence['operation']} of {where}{more}")
    for arm, did in divergence["arms"].items():
        print_wrapped(console, f"{arm}: {did}", 2)
    if divergence.get("why"):
        print_wrapped(console, divergence["why"], 2)


def _print_verdict(console: Console, document: dict[str, Any]) -> None:
    verdict = document["verdict"]
    console.print()
    expected = "as expected" if document["as_expected"] else "not as expected"
    line = Text("verdict  ")
    line.append(verdict, style=STYLES.get(verdict, ""))
    line.append(f" ({expected})")
    console.print(line)
    if verdict == "fail" and document["as_expected"] and "compare" not in document:
        console.print("  exit 1: run reports the raw verdict; compare exits 0 where its test arm passes")
    for reason in document["reasons"]:
        print_wrapped(console, reason, 2)
    missing = document["coverage"]["missing"]
    if missing:
        console.print(f"marks never reached: {', '.join(missing)}")
    _print_exempt(console, document["coverage"].get("exempt") or {})
    _print_replays(console, document.get("workload") or {})
    if "compare" in document:
        compared = document["compare"]
        outcome = compared["outcome"].replace("_", " ")
        console.print(f"compare  base {compared['base']}, test {compared['test']}: {outcome}")
        if compared.get("reason"):
            print_wrapped(console, compared["reason"], 2)
        if compared.get("differences"):
            print_wrapped(console, f"the runs differ in {'; '.join(compared['differences'])}", 2)
        for arm, run in compared.get("runs", {}).items():
            _print_path(console, f"run of {arm}", run)
    if "determinism" in document:
        digests = document["determinism"]["digests"]
        console.print(f"digests  {' and '.join(digests)}")
    else:
        console.print(f"digest  {document['digest']}")


def _print_exempt(console: Console, exempt: dict[str, str]) -> None:
    """Marks that the run was not held to, by their reason."""
    by_reason: dict[str, list[str]] = {}
    for mark, why in exempt.items():
        by_reason.setdefault(why, []).append(mark)
    for why, marks in by_reason.items():
        print_wrapped(console, f"marks not asked for: {', '.join(marks)} ({why})", 0)


def _print_replays(console: Console, workload: dict[str, Any]) -> None:
    """A trace that was played beyond its size."""
    if workload.get("replays"):
        sessions, replays = workload["sessions"], workload["replays"]
        print_wrapped(
            console,
            f"workload  {workload['trace']} has too few sessions for {workload['requests_planned']} requests: "
            f"its {sessions} were played {replays} times more, as sessions of their own",
            0,
        )


def _print_path(console: Console, what: str, path: Path | str) -> None:
    """A path on one line, whole, so that it can be copied."""
    console.print(f"{what}  {path}", overflow="ignore", no_wrap=True, crop=False)


def print_wrapped(console: Console, text: str, indent: int) -> None:
    """Text at an indent, what does not fit the line two further in."""
    margin = " " * indent
    console.print(textwrap.fill(text, WIDTH, initial_indent=margin, subsequent_indent=f"{margin}  "))
