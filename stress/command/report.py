"""`kvstress report DIR`: an earlier result, read from the verdict.json of DIR.

The `kind` in it says what DIR holds, and so who reads and prints it; a run has none. What was killed, or goes on, is
shown as far as it came: of a run what its ranks had written, of a nightly the runs that were made.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TextIO

import click
import msgspec

UNFINISHED = 3


@click.command()
@click.argument("run_dir", metavar="DIR")
@click.option("--json", "as_json", is_flag=True, help="The verdict document on stdout.")
def report(run_dir: str, as_json: bool) -> int:
    """Print the result of the run, the seeds or the nightly in DIR (runs/latest is the latest run).

    Exit 0: the report was made, whatever the verdict. 1: it is not of this version. 2: there is none, or it is
    not whole. 3: there is no verdict yet; what has been written is shown.
    """
    folder, where = Path(run_dir).resolve(), f"{run_dir}/verdict.json"
    kind = _kind(folder)
    if kind not in KINDS:
        click.echo(f"{where}: kind {kind!r}, expected {' or '.join(KINDS)}", err=True)
        return 1
    return KINDS[kind](folder, where, as_json)


def _kind(folder: Path) -> str:
    """What the folder's verdict.json says it is; "run" where it says nothing, or is not there."""
    try:
        document = msgspec.json.decode((folder / "verdict.json").read_bytes())
    except (OSError, msgspec.MsgspecError):
        return "run"
    return str(document.get("kind", "run")) if isinstance(document, dict) else "run"


def _run(folder: Path, where: str, as_json: bool) -> int:
    from stress.command.unfinished import is_unfinished, unfinished_document
    from stress.record import RunDirectory
    from stress.report_text import print_report
    from stress.verdict import SCHEMA

    run = RunDirectory.open(folder)
    unfinished = is_unfinished(run)
    document = unfinished_document(run) if unfinished else run.read_verdict()
    shown = _show(document, SCHEMA, where, as_json, lambda stream: print_report(document, folder, stream))
    return UNFINISHED if unfinished and not shown else shown


def _nightly(folder: Path, where: str, as_json: bool) -> int:
    from stress.nightly_report import print_nightly
    from stress.nightly_verdict import SCHEMA, is_unfinished
    from stress.record import RunDirectory

    document = RunDirectory(folder).read_verdict()
    shown = _show(document, SCHEMA, where, as_json, lambda stream: print_nightly(document, folder, stream))
    return UNFINISHED if not shown and is_unfinished(document) else shown


def _seeds(folder: Path, where: str, as_json: bool) -> int:
    from stress.record import RunDirectory
    from stress.seeds import SCHEMA, is_unfinished
    from stress.seeds_report import print_seeds

    document = RunDirectory(folder).read_verdict()
    shown = _show(document, SCHEMA, where, as_json, lambda stream: print_seeds(document, folder, stream))
    return UNFINISHED if not shown and is_unfinished(document) else shown


Report = Callable[[Path, str, bool], int]
"""(folder, its verdict.json as the user would name it, whether JSON is asked for) -> exit code"""

KINDS: dict[str, Report] = {"run": _run, "nightly": _nightly, "seeds": _seeds}
"""One entry for each `kind` of verdict.json."""


def _show(
    document: dict[str, Any], schema: int, where: str, as_json: bool, print_to: Callable[[TextIO], None]
) -> int:
    """The document on stdout, as JSON or as text; 1 after one line where it is of another schema.

    Raises RunDirectoryError where the text finds no place for what it shows, with --json too.
    """
    from stress.record import RunDirectoryError

    if document.get("schema") != schema:
        click.echo(f"{where}: schema {document.get('schema')}, expected {schema}", err=True)
        return 1
    try:
        print_to(io.StringIO())
    except KeyError as missing:
        raise RunDirectoryError(f"{where}: has no {missing}; it is not whole, run again") from None
    except (AttributeError, IndexError, TypeError, ValueError) as error:
        raise RunDirectoryError(f"{where}: {error}; it was changed after the run, run again") from None
    if as_json:
        click.echo(msgspec.json.encode(document))
    else:
        print_to(sys.stdout)
    return 0
