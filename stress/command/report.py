"""`kvstress report RUN_DIR`: an earlier run's result, read from its verdict.json."""

from __future__ import annotations

from pathlib import Path

import click


@click.command()
@click.argument("run_dir", metavar="RUN_DIR")
@click.option("--json", "as_json", is_flag=True, help="The verdict document on stdout.")
def report(run_dir: str, as_json: bool) -> int:
    """Print the result of the run in RUN_DIR (runs/latest is the latest one).

    Exit 0: the report was made, whatever the verdict. 1: it is not of this version. 2: there is none.
    """
    from stress.command.execute import Outcome, show
    from stress.record import RunDirectory
    from stress.verdict import SCHEMA

    document = RunDirectory.open(run_dir).read_verdict()
    if document.get("schema") != SCHEMA:
        click.echo(f"{run_dir}/verdict.json: schema {document.get('schema')}, expected {SCHEMA}", err=True)
        return 1
    show(Outcome(document=document, run_dir=Path(run_dir)), as_json)
    return 0
