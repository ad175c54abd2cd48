"""`kvstress run CONFIG`: the main job: every arm, the same requests, one verdict."""

from __future__ import annotations

from typing import Any

import click

from stress.command.one_run import execute_and_show, exit_code
from stress.command.options import RunOptions, chosen_arms, resolve, run_options, with_faults


@click.command()
@click.argument("config", metavar="CONFIG")
@click.option("--arm", "arms", multiple=True, metavar="NAME", help="Run this arm only; may be repeated.")
@run_options
def run(config: str, arms: tuple[str, ...], **given: Any) -> int:
    """Run the arms of CONFIG, a name in configs/ or a path.

    With --seeds N the folder holds seed-S/ to seed-(S+N-1)/ and the sum of them, and the worst verdict counts.

    Exit 0: pass. 1: fail (a finding, an assert or an error). 2: usage or configuration. 3: unknown (a lost
    rank, a mark never reached) or the machine can't start the ranks. 130: interrupted.
    """
    from stress.verdict import EXIT_CODES

    options = RunOptions(**given)
    resolved = resolve(config, options)
    chosen = chosen_arms(resolved, arms, options.faults)
    if options.seeds is not None:
        from stress.command.seeds import run_seeds

        return run_seeds(
            options, lambda seeded: with_faults(resolve(config, seeded), options.faults, chosen), chosen
        )
    outcome = execute_and_show(with_faults(resolved, options.faults, chosen), chosen, options)
    return exit_code(outcome, EXIT_CODES[outcome.document["verdict"]])
