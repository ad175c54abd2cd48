"""`kvstress compare`: is the fault there, and is it fixed? Two arms of a configuration, or of two earlier runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import msgspec
from click.core import ParameterSource

from stress.command.one_run import execute_and_show, exit_code
from stress.command.options import RunOptions, resolve, run_options, with_faults, with_target
from stress.config import Config, ConfigError, config_names

UNKNOWN = 3


@click.command()
@click.argument("config", metavar="CONFIG|RUN_A")
@click.argument("other_run", metavar="[RUN_B]", required=False)
@click.option(
    "--base", metavar="ARM|TARGET", help="The arm, or the target, that is said to be faulty; of RUN_A."
)
@click.option(
    "--test", metavar="ARM|TARGET", help="The arm, or the target, that is said to be fixed; of RUN_B."
)
@run_options
def compare(config: str, other_run: str | None, base: str | None, test: str | None, **given: Any) -> int:
    """Run two arms of CONFIG on the same requests, or compare two runs that were made.

    With CONFIG --base and --test are required: arms of it, or targets such as vllm==0.33.0. With two run directories
    nothing is run; they name the arm where a directory holds several, and --out DIR keeps the document. Of two arms
    --fault puts a fault into the base alone. A base that fails by errors alone, without a finding or an assert, shows
    no fault of memory: unknown.

    With --seeds N: 1 where the test arm fails on any seed, else 3 where any is unknown, else 4 where the base fails on
    none, else 0; the sum says on how many seeds the base failed.

    Exit 0: reproduced and fixed. 1: not fixed, or regressed. 2: usage or configuration. 3: unknown.
    4: not reproduced. 130: interrupted.
    """
    options = RunOptions(**given)
    if other_run is not None:
        return _compare_made(config, other_run, base, test, options)
    _refuse_lone_run(config)
    for option, arm in (("--base", base), ("--test", test)):
        if arm is None:
            raise click.MissingParameter(param_hint=f"'{option}'", param_type="option")
    return _compare_live(config, base, test, options)


def _refuse_lone_run(config: str) -> None:
    """Raises ConfigError for a run directory that no other one follows."""
    if (Path(config) / "ranks").is_dir() and config not in config_names():
        raise ConfigError(f"{config}: is a run; name the one to compare it with behind it, or a CONFIG")


def _compare_live(config: str, base: str, test: str, options: RunOptions) -> int:
    from stress.arm_layout import is_parallel
    from stress.compare import compare_arms, second_name

    targets = base, test
    resolved, base, test = _with_arms(resolve(config, options), *targets)
    if base == test and is_parallel(resolved):
        raise ConfigError(
            f"--test {test}: is the base too, and arms.mode = parallel needs ranks of their own for both; "
            "use --set arms.mode=sequence without the arms' ranks"
        )
    second = second_name(base, test)

    def pair_of(config: Config) -> Config:
        return with_faults(_only(config, {base: base, second: test}), options.faults, [base])

    pair = pair_of(resolved)

    def finish(document: dict[str, Any]) -> None:
        document["compare"] = compare_arms(document, base, second)

    if options.seeds is not None:
        from stress.command.seeds import run_seeds
        from stress.seeds import Pair

        def seeded(one: RunOptions) -> Config:
            return pair_of(_with_arms(resolve(config, one), *targets)[0])

        return run_seeds(options, seeded, [base, second], Pair(base=base, test=second), finish)
    outcome = execute_and_show(pair, [base, second], options, finish)
    return exit_code(outcome, outcome.document["compare"]["exit_code"])


def _with_arms(config: Config, base: str, test: str) -> tuple[Config, str, str]:
    """The configuration with both arms, and their names; see `with_target`."""
    config, base_arm = with_target(config, base, "--base", "fail")
    config, test_arm = (config, base_arm) if test == base else with_target(config, test, "--test", "pass")
    return config, base_arm, test_arm


def _compare_made(
    base_dir: str, test_dir: str, base: str | None, test: str | None, options: RunOptions
) -> int:
    from stress.command.compare_runs import RunUnfinished, compare_runs
    from stress.record import RunDirectory
    from stress.report_text import print_report

    _refuse_run_options()
    try:
        document = compare_runs(base_dir, test_dir, base, test)
    except RunUnfinished as unfinished:
        click.echo(f"kvstress: {unfinished}", err=True)
        return UNKNOWN
    out = None
    if options.out is not None:
        run = RunDirectory.create(options.out, document["config"])
        out = run.write_verdict(document).parent
    if options.as_json:
        click.echo(msgspec.json.encode(document))
    else:
        print_report(document, out)
    return document["compare"]["exit_code"]


def _refuse_run_options() -> None:
    """Raises ConfigError for an option that says how to run, since nothing is run."""
    context = click.get_current_context()
    for parameter in context.command.params:
        given = context.get_parameter_source(parameter.name) is ParameterSource.COMMANDLINE
        if given and parameter.name not in ("config", "other_run", "base", "test", "out", "as_json"):
            raise ConfigError(
                f"{parameter.opts[0]}: two runs that were made are only read; leave it out, or name one CONFIG"
            )


def _only(config: Config, arms: dict[str, str]) -> Config:
    """The configuration with these arms alone: new name -> name."""
    named = {name: config.arms.named[old] for name, old in arms.items()}
    return msgspec.structs.replace(config, arms=msgspec.structs.replace(config.arms, named=named))
