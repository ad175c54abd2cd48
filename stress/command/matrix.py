"""`kvstress matrix`: every named fault against every detector, idle and loaded, with its clean twin."""

from __future__ import annotations

import itertools
from typing import Any

import click
import msgspec

from stress.config import ConfigError
from stress.fault_catalogue import FAULTS


@click.command()
@click.option("--fault", "faults", multiple=True, metavar="F", help="This fault only; may be repeated.")
@click.option(
    "--each-rule-off",
    is_flag=True,
    help="Then run rows again with each rule that held them off, and show what each rule is needed for.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout; progress on stderr.")
def matrix(faults: tuple[str, ...], each_rule_off: bool, as_json: bool) -> int:
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
    done, tried = itertools.count(1), itertools.count(1)

    def tell(row: dict[str, Any]) -> None:
        verdict = "found" if row["holds"] else "NOT AS PROMISED"
        first = row["first"] or "nothing"
        click.echo(f"{next(done)}/{total} {row['fault']} {row['pool_state']}: {first}, {verdict}", err=True)

    def tell_trial(trial: Any, document: dict[str, Any], trials: int) -> None:
        verdict = "LOST" if document["lost"] else "found"
        in_time = " ".join(document["in_time"]) or "nothing"
        where = f"{trial.fault} {trial.pool_state} without {trial.rule}"
        click.echo(f"{next(tried)}/{trials} {where}: {in_time}, {verdict}", err=True)

    document = make_matrix(chosen, tell, each_rule_off, tell_trial)
    if as_json:
        click.echo(msgspec.json.encode(document))
    else:
        from stress.command.matrix_text import print_matrix, print_rules

        print_matrix(document)
        if each_rule_off:
            print_rules(document)
    return 0 if all(row["holds"] for row in document["rows"]) else 1
