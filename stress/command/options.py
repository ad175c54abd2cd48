"""The options that `run` and `compare` share, and what they resolve to.

`run_options` adds them to a command, which gets them as keywords; `RunOptions` holds them. Options of parts
that are not there yet are left out of the help and refused before anything starts, in one line.
"""

from __future__ import annotations

import hashlib
import re
import shlex
from collections.abc import Callable
from typing import Any

import click
import msgspec

from stress.config import Config, ConfigError, blame, load_config
from stress.config_checks import check_config
from stress.config_limits import SEED_MAX
from stress.config_schema import Arm
from stress.fault_catalogue import FAULTS
from stress.fault_name import join_faults, parse_faults
from stress.launch.contract import LAUNCHERS
from stress.target.name import looks_like_target

SEEDS_MAX = 1000
NAME_LENGTH = 60  # of an arm, which becomes part of file names

_OPTIONS = (
    click.option(
        "--set",
        "overrides",
        multiple=True,
        metavar="a.b=v",
        help="Override a key; v is TOML, or a bare word.",
    ),
    click.option(
        "--fault",
        "faults",
        multiple=True,
        metavar="F",
        help="Put a named fault (F06, F16@3) into the arms that run, by default those that are expected to pass; they "
        "must fail then; may be repeated.",
    ),
    click.option(
        "--launcher",
        type=click.Choice(LAUNCHERS),
        default="ray",
        show_default=True,
        help="What starts the ranks.",
    ),
    click.option("--seed", type=click.IntRange(0, SEED_MAX), help="Instead of the configuration's seed."),
    click.option(
        "--seeds",
        type=click.IntRange(1, SEEDS_MAX),
        metavar="N",
        help="N seeds from --seed on, each a run of its own, and their sum.",
    ),
    click.option(
        "--swarm",
        is_flag=True,
        help="Draw features, page size, window and pool sizes from the seed, all that --set does not set; what is "
        "drawn is printed.",
    ),
    click.option("--resume", hidden=True),
    click.option("--verify-determinism", is_flag=True, help="Run twice and compare the digests."),
    click.option("--out", metavar="DIR", help="The run directory; default: runs/CONFIG-TIME."),
    click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout; progress on stderr."),
)


class RunOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The shared options as given."""

    overrides: tuple[str, ...] = ()
    faults: tuple[str, ...] = ()
    launcher: str = "ray"
    seed: int | None = None
    seeds: int | None = None  # None: one run; a number: a folder of that many, also for 1
    swarm: bool = False
    resume: str | None = None
    verify_determinism: bool = False
    out: str | None = None
    as_json: bool = False


def run_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the shared options to a click command function."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def resolve(config_name: str, options: RunOptions) -> Config:
    """The configuration that the options ask for. Raises ConfigError."""
    if options.resume is not None:
        raise ConfigError("--resume: runs in epochs are not built yet; start the run again without it")
    if options.out == "":
        raise ConfigError("--out: is empty; name a new directory, or leave it out")
    overrides = [*_needs(options.faults), *options.overrides]  # a user's own come last, and win
    config = load_config(config_name, overrides, options.seed)
    return _swarm(config, overrides) if options.swarm else config


def _needs(faults: tuple[str, ...]) -> list[str]:
    """What the faults need of a workload to act at all, as --set takes it; told on stderr."""
    if not faults:
        return []
    try:
        named = parse_faults(join_faults(faults))
    except ValueError as error:
        raise ConfigError(f"--fault {' --fault '.join(faults)}: {error}") from None
    needs = [setting for fault, _ in named.chosen for setting in FAULTS[fault].needs]
    if needs:
        click.echo(f"--fault {' --fault '.join(faults)}: needs and gets {' '.join(needs)}", err=True)
    return needs


def _swarm(config: Config, given: list[str]) -> Config:
    """The configuration that its seed draws; what was drawn is told on stderr."""
    from stress.swarm import swarm_config

    try:
        drawn, overrides = swarm_config(config, given)
    except ConfigError as error:
        raise ConfigError(f"--swarm --seed {config.seed}: {blame(str(error), given)}") from None
    click.echo(
        f"swarm: seed {config.seed} draws {shlex.join(overrides) or 'the configuration as it is'}", err=True
    )
    return drawn


def chosen_arms(config: Config, names: tuple[str, ...], faults: tuple[str, ...] = ()) -> list[str]:
    """The arms to run in the order of the configuration. Raises ConfigError.

    All where none is named; with `faults` those that are expected to pass: the others fail without them.
    """
    for name in names:
        require_arm(config, name, "--arm")
    arms = [arm for arm in config.arms.named if not names or arm in names]
    sound = [arm for arm in arms if config.arms.named[arm].expect == "pass"]
    return sound if faults and sound and not names else arms


def with_faults(config: Config, faults: tuple[str, ...], arms: list[str]) -> Config:
    """The configuration with the faults of --fault in these arms, beside those that they name. Raises ConfigError.

    Such an arm is expected to fail; a clean twin as the configuration says.
    """
    if not faults:
        return config
    replace = msgspec.structs.replace
    faulty = {}
    try:
        for arm in arms:
            record = config.arms.named[arm]
            fault = join_faults([*([record.fault] if record.fault else []), *faults])
            expect = record.expect if parse_faults(fault).dry else "fail"
            faulty[arm] = replace(record, fault=fault, expect=expect)
        # These alone: an arm beside them may have the name of a second run, which no file can give it.
        check_config(replace(config, arms=replace(config.arms, named=faulty)))
    except ValueError as error:
        raise ConfigError(f"--fault {' --fault '.join(faults)}: {error}") from None
    return replace(config, arms=replace(config.arms, named=config.arms.named | faulty))


def with_target(config: Config, name: str, option: str, expect: str) -> tuple[Config, str]:
    """The configuration and the name of an arm: one that it has, or a target, which becomes an arm. Raises ConfigError.

    Such an arm has the defaults of a table with that target alone, and is named after it: `vllm-0-33-0`; where that is
    another arm's name, with a digest of the target behind it.
    """
    if name in config.arms.named or not looks_like_target(name):
        require_arm(config, name, option)
        return config, name
    arm = re.sub(r"[^A-Za-z0-9_-]+", "-", name).strip("-")[:NAME_LENGTH]
    if arm in config.arms.named:
        arm = f"{arm[: NAME_LENGTH - 7]}-{hashlib.sha256(name.encode()).hexdigest()[:6]}"
    replace = msgspec.structs.replace
    named = {arm: Arm(target=name, expect=expect)}
    try:
        check_config(replace(config, arms=replace(config.arms, named=named)))
    except ConfigError as error:
        raise ConfigError(f"{option} {name}: {str(error).partition('target: ')[2] or error}") from None
    return replace(config, arms=replace(config.arms, named=config.arms.named | named)), arm


def require_arm(config: Config, name: str, option: str) -> None:
    """Raises ConfigError, with the choices, where the configuration has no such arm."""
    if name not in config.arms.named:
        arms = ", ".join(config.arms.named)
        raise ConfigError(f"{option} {name}: config {config.name} has no such arm; choose {arms}")
