"""`kvstress matrix`: every named fault against every detector, idle and loaded, with its clean twin."""

from __future__ import annotations

import itertools
from typing import Any

import click
import msgspec

from stress.config import ConfigError
from stress.fault_catalogue import FAULTS
from stress.fault_name import parse_faults

INFRASTRUCTURE = 3
INTERRUPTED = 130
# The bases of the matrix are runs of the reference.
_OF_REFERENCE = [fault for fault, facts in FAULTS.items() if facts.project == "reference"]


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
    came to the trigger without a finding. 1: one was not. 2: usage. 3: a run could not be made. 130: interrupted.
    After the last two the rows that were made are shown.
    """
    named = {_fault_of(text) for text in faults}
    from stress.matrix.plan import INTERRUPTED as ASKED_TO_END
    from stress.matrix.plan import make_matrix, rows_of

    chosen = [fault for fault in _OF_REFERENCE if not named or fault in named]
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
    _show(document, as_json)
    rows, early = document["rows"], document["ended_early"]
    if early:
        click.echo(f"kvstress: the matrix {early}; {len(rows)} of {total} rows were made", err=True)
        return INTERRUPTED if early == ASKED_TO_END else INFRASTRUCTURE
    return 0 if all(row["holds"] for row in rows) else 1


def _fault_of(text: str) -> str:
    """The one fault that `text` names. Raises ConfigError."""
    try:
        named = parse_faults(text)
    except ValueError:
        raise ConfigError(
            f"--fault {text}: unknown fault; the faults are {', '.join(_OF_REFERENCE)}"
        ) from None
    fault, ranks = named.chosen[0]
    if fault not in _OF_REFERENCE:
        facts = FAULTS[fault]
        raise ConfigError(
            f"--fault {text}: is a fault of a client of {facts.project}, and the matrix runs the reference; "
            f"use kvstress run {facts.config} --fault {fault}"
        )
    if len(named.chosen) > 1 or named.dry or ranks is not None:
        raise ConfigError(
            f"--fault {text}: the matrix takes faults one by one, and makes their clean twins; name them alone, "
            "as in --fault F06 --fault F13"
        )
    return fault


def _show(document: dict[str, Any], as_json: bool) -> None:
    from stress.command.matrix_text import print_matrix, print_rules

    if as_json:
        click.echo(msgspec.json.encode(document))
    elif document["rows"]:
        print_matrix(document)
        if "rules" in document and not document["ended_early"]:
            print_rules(document)
