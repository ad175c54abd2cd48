"""A nightly's `summary.md`: the verdict first, a table of the runs, then each run that did not pass.

Made for a job's summary page: whoever opens it sees in the first line whether to read on, and under each
failure its first finding, the page's history and the command that runs it again.
"""

from __future__ import annotations

from typing import Any

from stress.junit import clean
from stress.nightly_junit import problem_text
from stress.nightly_verdict import Outcome, totals

TOLD_MAX = 50
LINES_MAX = 30
LINE_CHARACTERS = 400  # a job's summary page takes 1 MiB
_COLUMNS = (
    "run",
    "seed",
    "arms",
    "verdict",
    "findings",
    "asserts",
    "errors",
    "ranks lost",
    "finished",
    "wall s",
)


def summary_text(document: dict[str, Any], canary: Outcome, runs: list[Outcome]) -> str:
    """The Markdown text. `document` is the nightly's verdict document."""
    lines = [f"# Nightly {document['nightly']}: {document['verdict']}", ""]
    lines += [f"* {_line(reason)}" for reason in document["reasons"]]
    history = document["history"]
    if history["run_first"]:
        lines.append(f"* {_plural(history['run_first'], 'seed')} that failed before ran first.")
    if history["problem"]:
        lines.append(f"* The history was not kept: {_line(history['problem'])}")
    if history["of_other_matrices"]:
        kept = _plural(history["of_other_matrices"], "kept seed")
        lines.append(f"* {kept} of other matrices stayed in `{history['file']}`.")
    lines += [
        f"* Started {document['started_utc']}, {document['wall_s']:.0f} s, launcher {document['launcher']}.",
        "",
    ]
    lines += [_row(_COLUMNS), _row(["---"] * len(_COLUMNS))]
    lines += [_row(_cells(outcome)) for outcome in [canary, *runs]]
    bad = [outcome for outcome in [canary, *runs] if outcome.verdict != "pass"]
    bad.sort(key=lambda outcome: outcome.verdict != "fail")  # failures before what is unknown
    for outcome in bad[:TOLD_MAX]:
        lines += ["", *_told(outcome, document["launcher"])]
    if len(bad) > TOLD_MAX:
        lines += ["", f"{len(bad) - TOLD_MAX} more in `verdict.json` and `junit.xml`."]
    return "\n".join(lines) + "\n"


def _cells(outcome: Outcome) -> list[str]:
    planned, made = outcome.planned, outcome.made
    document = made.document if made else None
    summed = totals(document)
    counts = [summed[key] for key in ("findings", "asserts", "errors", "ranks_lost", "requests_finished")]
    kept = " (failed before)" if planned.kept else ""
    verdict = outcome.verdict if outcome.verdict == "pass" else f"**{outcome.verdict}**"
    if planned.case.name == "canary" and outcome.verdict == "pass":
        verdict = "pass (failed, as it must)"
    return [
        planned.case.name + kept,
        str(planned.seed),
        ", ".join(planned.case.arms),
        verdict,
        *(str(count) if document else "" for count in counts),
        f"{made.wall_s:.1f}" if made else "",
    ]


def _told(outcome: Outcome, launcher: str) -> list[str]:
    lines = [f"## {outcome.planned.name}: {outcome.verdict}", ""]
    lines += [f"* {_line(reason)}" for reason in outcome.reasons]
    document = outcome.made.document if outcome.made else None
    first = _first(document) if document else None
    if first is not None:
        arm, rank = first
        lines += [
            "",
            f"First on arm {arm}, rank {rank['rank']}:",
            "",
            *_block([_cut(line) for line in problem_text(rank).splitlines()]),
        ]
    lines += ["", "Run it again:", "", *_block([outcome.planned.command(launcher)])]
    return lines


def _first(document: dict[str, Any]) -> tuple[str, dict[str, Any]] | None:
    """The rank with the first finding; without one, with the first assert, then the first error."""
    ranks = [(arm, rank) for arm, entry in document["arms"].items() for rank in entry["ranks"]]
    for key in ("first_finding", "first_assert", "first_error"):
        found = [pair for pair in ranks if pair[1][key]]
        if found:
            return min(found, key=lambda pair: (pair[1][key]["virtual_s"], pair[1]["rank"]))
    return None


def _block(lines: list[str]) -> list[str]:
    """Lines as they are: indented, so that no text of a target ends the block."""
    shown = lines[:LINES_MAX]
    cut = [f"[{len(lines) - LINES_MAX} more lines]"] if len(lines) > LINES_MAX else []
    return [f"    {clean(line)}" for line in shown + cut]


def _cut(line: str) -> str:
    return line if len(line) <= LINE_CHARACTERS else f"{line[:LINE_CHARACTERS]} [...]"


def _row(cells: Any) -> str:
    return f"| {' | '.join(_line(cell) for cell in cells)} |"


def _line(text: str) -> str:
    """One line of text that ends no table cell and opens no tag."""
    line = _cut(" ".join(clean(text).split()))
    return line.replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;").replace("`", "\\`")


def _plural(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
