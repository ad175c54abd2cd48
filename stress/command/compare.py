"""`kvstress compare CONFIG --base ARM --test ARM`: is the fault there, and is it fixed?"""

from __future__ import annotations

from typing import Any

import click
import msgspec

from stress.command.execute import execute, exit_code, show
from stress.command.options import RunOptions, require_arm, resolve, run_options, with_faults
from stress.config import Config


@click.command()
@click.argument("config", metavar="CONFIG")
@click.option("--base", required=True, metavar="ARM", help="The arm that is said to be faulty.")
@click.option("--test", required=True, metavar="ARM", help="The arm that is said to be fixed.")
@run_options
def compare(config: str, base: str, test: str, **given: Any) -> int:
    """Run two arms of CONFIG on the same requests. --fault puts a fault into the base alone.

    Exit 0: reproduced and fixed. 1: not fixed, or regressed. 2: usage or configuration. 3: unknown.
    4: not reproduced. 130: interrupted.
    """
    from stress.compare import compare_arms, second_name

    options = RunOptions(**given)
    resolved = resolve(config, options)
    require_arm(resolved, base, "--base")
    require_arm(resolved, test, "--test")
    second = second_name(base, test)
    pair = with_faults(_only(resolved, {base: base, second: test}), options.faults, [base])

    def finish(document: dict[str, Any]) -> None:
        document["compare"] = compare_arms(document, base, second)

    outcome = execute(pair, [base, second], options, finish)
    show(outcome, options.as_json)
    return exit_code(outcome, outcome.document["compare"]["exit_code"])


def _only(config: Config, arms: dict[str, str]) -> Config:
    """The configuration with these arms alone: new name -> name."""
    named = {name: config.arms.named[old] for name, old in arms.items()}
    return msgspec.structs.replace(config, arms=msgspec.structs.replace(config.arms, named=named))
