"""`kvstress doctor`: what of kvstress will run on this machine, and how to mend the rest.

Exit 0: `run` has what it needs. 3: something that it needs is broken.
"""

from __future__ import annotations

import textwrap
from typing import Any

import click
import msgspec

BROKEN = 3
WIDTH = 100
_CALLED = {
    "cuda": "layout.device = cuda",
    "fetched_targets": "fetched targets (sglang==V)",
    "fetched_vllm_targets": "fetched targets (vllm==V)",
}


@click.command()
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
def doctor(as_json: bool) -> int:
    """Look at this machine: devices, torch, ray, limits, folders. Nothing is joined, started or installed.

    Exit 0: run has what it needs, perhaps with warnings. Exit 3: something that it needs is broken.
    """
    from stress.doctor.examine import document_of, examine

    document = document_of(examine())
    if as_json:
        click.echo(msgspec.json.encode(document))
    else:
        for line in lines_of(document):
            click.echo(line)
    return BROKEN if document["state"] == "broken" else 0


def lines_of(document: dict[str, Any]) -> list[str]:
    """The report for people: a line a check, what is not in order with its meaning and its cure."""
    width = max(len(check.name) for check in document["checks"])
    lines = []
    for check in document["checks"]:
        lines += _wrapped(f"{check.state:<8} {check.name:<{width}}  ", check.found)
        if check.means:
            lines += _wrapped(" " * (11 + width), check.means)
        if check.cure:
            lines += _wrapped(" " * (11 + width) + "cure: ", check.cure)
    for word, wanted in (("runs", True), ("won't run", False)):
        named = [
            _CALLED.get(name, f"--launcher {name}")
            for name, runs in document["runs"].items()
            if runs is wanted
        ]
        if named:
            lines += ["", *_wrapped(f"{word} here: ", ", ".join(named))]
    return lines


def _wrapped(start: str, text: str) -> list[str]:
    return textwrap.wrap(
        text,
        WIDTH,
        initial_indent=start,
        subsequent_indent=" " * len(start),
        break_long_words=False,
        break_on_hyphens=False,
    ) or [start.rstrip()]
