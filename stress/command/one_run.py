"""What a command that makes one run does with it: the result on stdout, and the exit code."""

from __future__ import annotations

import click
import msgspec

from stress.command.execute import INTERRUPTED, UNKNOWN, Finish, Outcome, execute
from stress.command.options import RunOptions
from stress.config import Config


def execute_and_show(
    config: Config, arms: list[str], options: RunOptions, finish: Finish | None = None
) -> Outcome:
    """As `execute`, with the result on stdout; also with one that can't be written, before that is raised."""
    from stress.command.run_record import VerdictUnwritten

    try:
        outcome = execute(config, arms, options, finish)
    except VerdictUnwritten as unwritten:
        show(Outcome(document=unwritten.document), options.as_json)
        raise
    show(outcome, options.as_json)
    return outcome


def exit_code(outcome: Outcome, code: int) -> int:
    """The command's exit code: `code`, unless the run was interrupted or not deterministic."""
    if outcome.interrupted:
        return INTERRUPTED
    return code if outcome.document.get("determinism", {"equal": True})["equal"] else UNKNOWN


def show(outcome: Outcome, as_json: bool) -> None:
    """The result on stdout."""
    if as_json:
        click.echo(msgspec.json.encode(outcome.document))
        return
    from stress.report_text import print_report

    print_report(outcome.document, outcome.run_dir)
