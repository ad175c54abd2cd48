"""`kvstress matrix`: every named fault against every detector, idle and loaded, with its clean twin."""

from __future__ import annotations

from typing import Any

import click
import msgspec

from stress.config import ConfigError
from stress.fault_catalogue import FAULTS


@click.command()
@click.option("--fault", "faults", multiple=True, metavar="F", help="This fault only; may be repeated.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout; progress on stderr.")
def matrix(faults: tuple[str, ...], as_json: bool) -> int:
    """Run each named fault on an idle and on a loaded pool, and show which detector fired, and when.

    Exit 0: every fault was found by a rule that is meant to find it, at the faulty operation, and every clean twin
    came to the trigger without a finding. 1: one was not. 2: usage. 3: a run could not be made.
    """
    for fault in faults:
        if fault not in FAULTS:
            raise ConfigError(f"--fault {fault}: unknown fault; the faults are {', '.join(FAULTS)}")
    from stress.matrix.plan import make_matrix, rows_of

    chosen = [fault for fault in FAULTS if not faults or fault in faults]
    total = len(rows_of(chosen))
    done = 0

    def tell(row: dict[str, Any]) -> None:
        nonlocal done
        done += 1
        verdict = "found" if row["holds"] else "NOT AS PROMISED"
        first = row["first"] or "nothing"
        click.echo(f"{done}/{total} {row['fault']} {row['pool_state']}: {first}, {verdict}", err=True)

    document = make_matrix(chosen, tell)
    if as_json:
        click.echo(msgspec.json.encode(document))
    else:
        from stress.command.matrix_text import print_matrix

        print_matrix(document)
    return 0 if all(row["holds"] for row in document["rows"]) else 1
