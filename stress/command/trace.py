"""`kvstress trace info FILE`: what a trace holds. Exit 0, or 1 where it has rows that can't be played."""

from __future__ import annotations

from typing import Any

import click
import msgspec


@click.group(no_args_is_help=False)
def trace() -> None:
    """Look at request traces."""


@trace.command()
@click.argument("file")
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
def info(file: str, as_json: bool) -> int:
    """Format, sessions, requests, lengths and prefix hits of a trace FILE, or of generated:agentic.

    Exit 0: every row can be played. Exit 1: some can't (workload.on_bad_row = "skip" leaves them out).
    """
    from stress.config import Serving, Workload
    from stress.workload.info import generated_info, trace_info

    if file.startswith("generated:"):
        facts = generated_info(file, Workload(), Serving())
    else:
        facts = trace_info(file)
    if as_json:
        click.echo(msgspec.json.encode(facts))
    else:
        for line in _lines(facts):
            click.echo(line)
    return 1 if facts.get("bad_rows") else 0


def _lines(facts: dict[str, Any], indent: str = "") -> list[str]:
    width = max((len(key) for key in facts), default=0)
    lines = []
    for key, value in facts.items():
        if isinstance(value, dict):
            flat = "  ".join(f"{name} {_number(part)}" for name, part in value.items())
            lines.append(f"{indent}{key:<{width}}  {flat}")
        else:
            lines.append(f"{indent}{key:<{width}}  {_number(value)}")
    return lines


def _number(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    return f"{value:,}" if isinstance(value, int) else f"{value:,.3f}"
