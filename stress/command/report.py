"""`kvstress report RUN_DIR`: an earlier run's result, read from its verdict.json.

A run that was killed, or goes on, has none: then what its ranks had written is shown, and the verdict is unknown.
"""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import click

UNFINISHED = 3


@click.command()
@click.argument("run_dir", metavar="RUN_DIR")
@click.option("--json", "as_json", is_flag=True, help="The verdict document on stdout.")
def report(run_dir: str, as_json: bool) -> int:
    """Print the result of the run in RUN_DIR (runs/latest is the latest one).

    Exit 0: the report was made, whatever the verdict. 1: it is not of this version. 2: there is none, or it is
    not whole. 3: the run has no verdict yet; what its ranks have written is shown.
    """
    from stress.command.execute import Outcome, show
    from stress.command.unfinished import is_unfinished, unfinished_document
    from stress.record import RunDirectory
    from stress.verdict import SCHEMA

    run = RunDirectory.open(Path(run_dir).resolve())
    unfinished = is_unfinished(run)
    document = unfinished_document(run) if unfinished else run.read_verdict()
    if document.get("schema") != SCHEMA:
        click.echo(f"{run_dir}/verdict.json: schema {document.get('schema')}, expected {SCHEMA}", err=True)
        return 1
    _require_whole(document, f"{run_dir}/verdict.json")
    show(Outcome(document=document, run_dir=run.path), as_json)
    return UNFINISHED if unfinished else 0


def _require_whole(document: dict[str, Any], where: str) -> None:
    """Raises RunDirectoryError where the text report finds no place for what it shows."""
    from stress.record import RunDirectoryError
    from stress.report_text import print_report

    try:
        print_report(document, Path(), io.StringIO())
    except KeyError as missing:
        raise RunDirectoryError(f"{where}: has no {missing}; it is not whole, run again") from None
    except (AttributeError, IndexError, TypeError, ValueError) as error:
        raise RunDirectoryError(f"{where}: {error}; it was changed after the run, run again") from None
