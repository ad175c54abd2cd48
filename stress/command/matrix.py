"""`kvstress matrix`: every named fault against every detector, idle and loaded, with its clean twin."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import click
import msgspec

from stress.command.streams import remark
from stress.config import ConfigError
from stress.config_arms import whose
from stress.fault_catalogue import FAULTS
from stress.fault_forms import faults_of
from stress.fault_name import parse_faults
from stress.target.name import parse_target
from stress.target.project import PROJECTS

if TYPE_CHECKING:
    from stress.matrix.subject import Subject

INFRASTRUCTURE = 3
INTERRUPTED = 130


@click.command()
@click.option("--fault", "faults", multiple=True, metavar="F", help="This fault only; may be repeated.")
@click.option(
    "--target",
    default="reference",
    metavar="T",
    help="Whose faults: those that mean something on vllm==0.33.0, for instance. Default: the reference's.",
)
@click.option(
    "--each-rule-off",
    is_flag=True,
    help="Then run rows again with each rule that held them off, and show what each rule is needed for.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout; progress on stderr.")
def matrix(faults: tuple[str, ...], target: str, each_rule_off: bool, as_json: bool) -> int:
    """Run each named fault on an idle and on a loaded pool, and show which detector fired, and when.

    Exit 0: every fault was found by a rule that is meant to find it, at the faulty operation, and every clean twin
    came to the trigger without a finding. 1: one was not. 2: usage. 3: a run could not be made. 130: interrupted.
    After the last two the rows that were made are shown.
    """
    project = _project_of(target)
    named = {_fault_of(text, target, project) for text in faults}
    from stress.matrix.plan import INTERRUPTED as ASKED_TO_END
    from stress.matrix.plan import make_matrix, rows_of

    subject = _subject(project, target)
    chosen = [fault for fault in subject.faults if not named or fault in named]
    total = len(rows_of(chosen, subject))
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

    of = () if subject.tree is None else (subject,)
    document = make_matrix(chosen, tell, each_rule_off, tell_trial, *of)
    _show(document, as_json)
    rows, early = document["rows"], document["ended_early"]
    if early:
        click.echo(f"kvstress: the matrix {early}; {len(rows)} of {total} rows were made", err=True)
        return INTERRUPTED if early == ASKED_TO_END else INFRASTRUCTURE
    return 0 if all(row["holds"] for row in rows) else 1


def _project_of(target: str) -> str:
    """The project of a target that has named faults. Raises ConfigError and TargetError."""
    parsed = parse_target(target)
    if parsed.mode:
        example = f"{parsed.project}=={PROJECTS[parsed.project].example}"
        raise ConfigError(
            f"--target {target}: its {parsed.mode} decides, and named faults act where our own loop does; name one "
            f"such as {example}"
        )
    if not faults_of(parsed.project):
        homes = sorted({facts.project for facts in FAULTS.values()} - {"reference"})
        examples = " or ".join(f"{home}=={PROJECTS[home].example}" for home in homes)
        raise ConfigError(
            f"--target {target}: no named fault has a form on {parsed.project}; leave it out for those of the "
            f"reference, or name one such as {examples}"
        )
    return parsed.project


def _subject(project: str, target: str) -> Subject:
    """With the folder of its tree, which is fetched where it is not there yet. Raises TargetUnavailable."""
    from stress.matrix.subject import REFERENCE, Subject

    if project == REFERENCE.project:
        return REFERENCE
    from stress.target.store import resolve

    return Subject(project, target, str(resolve(target, remark)))


def _fault_of(text: str, target: str, project: str) -> str:
    """The one fault that `text` names. Raises ConfigError."""
    known = faults_of(project)
    try:
        named = parse_faults(text)
    except ValueError:
        raise ConfigError(f"--fault {text}: unknown fault; the faults are {', '.join(known)}") from None
    fault, ranks = named.chosen[0]
    if fault not in known:
        raise ConfigError(f"--fault {text}: {_elsewhere(fault, target, project)}")
    if len(named.chosen) > 1 or named.dry or ranks is not None:
        raise ConfigError(
            f"--fault {text}: the matrix takes faults one by one, and makes their clean twins; name them alone, "
            "as in --fault F06 --fault F13"
        )
    return fault


def _elsewhere(fault: str, target: str, project: str) -> str:
    """Where a fault is that the project's engine can't have."""
    home = FAULTS[fault].project
    if project != "reference":
        return f"has no meaning on {target}; its faults are {', '.join(faults_of(project))}"
    example = PROJECTS[home].example
    return f"is a fault of {whose(fault)}, and the matrix runs the reference; add --target {home}=={example}"


def _show(document: dict[str, Any], as_json: bool) -> None:
    from stress.command.matrix_text import print_matrix, print_rules

    if as_json:
        click.echo(msgspec.json.encode(document))
    elif document["rows"]:
        print_matrix(document)
        if "rules" in document and not document["ended_early"]:
            print_rules(document)
