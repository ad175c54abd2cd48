"""A nightly's matrix: which runs it makes and which canary must fail, read from one TOML file.

    [nightly]         seeds = [1, 2, 3]
    [[nightly.run]]   config = "smoke"   arms = ["patched"]   set = { "pool.page_size" = [16, 64] }   name = "small"
    [nightly.canary]  config = "smoke"   arm = "unpatched"    set = { ... }   seed = 1

A list in `set` gives alternatives, a run each; of a key that takes a list, a list is the value and a list of
lists gives alternatives. With `swarm = true` each seed draws its own run (stress/swarm.py). Every combination has a
name, its folder's. All of them are resolved and checked when the file is read, so that a mistake is one line before
any run, with the key's path.
"""

from __future__ import annotations

import difflib
import itertools
import math
import re
from pathlib import Path
from typing import Any

import msgspec

from stress.config import Config, ConfigError, load_config
from stress.config_checks import NAME, NAME_CURE
from stress.config_file import read_toml, shipped
from stress.config_limits import SEED_MAX
from stress.nightly_settings import RUNS_MAX, alternatives_of, label_of, seeds_of

CANARY = "canary"
_UNKNOWN_FIELD = re.compile(r"Object contains unknown field `(.*)`\Z", re.DOTALL)


class _Table(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A TOML table. Unknown keys are refused."""


class _Run(_Table):
    config: str
    arms: list[str] = []  # none: those that are expected to pass
    set: dict[str, Any] = {}
    name: str = ""  # none: the configuration's
    swarm: bool = False  # each seed draws its own features and sizes


class _Canary(_Table):
    config: str
    arm: str
    set: dict[str, Any] = {}
    seed: int | None = None  # none: the configuration's


class _Nightly(_Table):
    seeds: list[int] | str  # a text is a range, both ends counted: "1-200"
    run: list[_Run]
    canary: _Canary


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """One combination of the matrix: a configuration, its arms and settings, for every seed."""

    name: str
    config: str
    arms: tuple[str, ...]
    overrides: tuple[str, ...] = ()  # as `--set` takes them
    swarm: bool = False

    def resolve(self, seed: int | None) -> Config:
        """Its configuration; the configuration's own seed where `seed` is None. Raises ConfigError."""
        config = load_config(self.config, list(self.overrides), seed)
        if not self.swarm:
            return config
        from stress.swarm import swarm_config

        return swarm_config(config, self.overrides)[0]


class Matrix(msgspec.Struct, frozen=True, kw_only=True):
    """A whole nightly."""

    name: str
    seeds: tuple[int, ...]
    cases: tuple[Case, ...]
    canary: Case
    canary_seed: int


def load_matrix(name_or_path: str, seeds: tuple[int, ...] = ()) -> Matrix:
    """The checked matrix of a name in configs/ or a file. `seeds` replaces its own. Raises ConfigError."""
    source, data = read_toml("nightly", name_or_path, shipped(nightly=True))
    try:
        return _matrix(_table(data), Path(source).stem, seeds)
    except ConfigError as error:
        raise ConfigError(f"{source}: {error}") from None


def _table(data: dict[str, Any]) -> _Nightly:
    others = [key for key in data if key != "nightly"]
    if "nightly" not in data:
        raise ConfigError(
            "nightly: missing; write [nightly] with seeds, [[nightly.run]] and [nightly.canary]"
        )
    if others:
        raise ConfigError(f"{others[0]}: unknown key; a nightly has the table [nightly] alone")
    try:
        return msgspec.convert(data["nightly"], _Nightly)
    except msgspec.ValidationError as error:
        what, _, where = str(error).partition(" - at `$")
        path = f"nightly{where.rstrip('`')}"
        keys = (_Run if ".run" in where else _Canary if ".canary" in where else _Nightly).__struct_fields__
        unknown = _UNKNOWN_FIELD.match(what)
        if not unknown:
            cure = (
                "add it" if "missing required field" in what else "give a value of the type that is expected"
            )
            raise ConfigError(f"{path}: {what}; {cure}") from None
        key = unknown.group(1)
        near = difflib.get_close_matches(key, keys, n=1, cutoff=0.6)
        cure = f"did you mean {path}.{near[0]}?" if near else f"the keys there are {', '.join(keys)}"
        raise ConfigError(f"{path}.{key}: unknown key; {cure}") from None


def _matrix(table: _Nightly, name: str, seeds: tuple[int, ...]) -> Matrix:
    origin = "--seed" if seeds else "nightly.seeds"
    seeds = seeds or seeds_of(table.seeds)
    if not seeds or len(set(seeds)) < len(seeds):
        what = "a seed is named twice" if seeds else "there is no seed"
        raise ConfigError(f"{origin}: {what}; give different integers, such as 1, 2 and 3")
    if not all(0 <= seed <= SEED_MAX for seed in seeds):
        raise ConfigError(f"{origin}: {list(seeds)}: out of range; give 0 to {SEED_MAX}")
    if not table.run:
        raise ConfigError("nightly.run: there is none; add a table [[nightly.run]] with a config")
    cases: dict[str, Case] = {}
    for index, run in enumerate(table.run):
        at = f"nightly.run[{index}]"
        combinations = _cases(run, at, len(seeds))
        for case in combinations:
            if case.name in cases or case.name == CANARY:
                raise ConfigError(
                    f"{at}: a second run would be named {case.name!r}; give it a name of its own"
                )
            cases[case.name] = _checked(case, at if len(combinations) == 1 else f"{at} {case.name}", seeds[0])
    if len(cases) * len(seeds) > RUNS_MAX:
        raise ConfigError(f"nightly.run: {len(cases) * len(seeds)} runs in all; make it {RUNS_MAX} or fewer")
    canary, canary_seed = _checked_canary(table.canary)
    return Matrix(name=name, seeds=seeds, cases=tuple(cases.values()), canary=canary, canary_seed=canary_seed)


def _cases(run: _Run, at: str, seeds: int) -> list[Case]:
    """Every combination of the alternatives of one [[nightly.run]], not checked yet."""
    name = run.name or Path(run.config).stem
    if not NAME.match(name):
        raise ConfigError(f"{at}.name: {name[:80]!r} can't name a folder; {NAME_CURE}")
    settings = alternatives_of(run.set, f"{at}.set")
    if math.prod(map(len, settings.values())) * seeds > RUNS_MAX:
        raise ConfigError(f"{at}.set: more than {RUNS_MAX} runs; give fewer alternatives")
    varied = [key for key, values in settings.items() if len(values) > 1]
    lasts = [key.rpartition(".")[2] for key in varied]
    short = {key: last if lasts.count(last) == 1 else key for key, last in zip(varied, lasts, strict=True)}
    cases = []
    for chosen in itertools.product(*(range(len(values)) for values in settings.values())):
        picked = dict(zip(settings, chosen, strict=True))
        parts = [f"{short[key]}_{label_of(settings[key], picked[key])}" for key in varied]
        overrides = tuple(f"{key}={settings[key][index]}" for key, index in picked.items())
        cases.append(
            Case(
                name="-".join([name, *parts]),
                config=run.config,
                arms=tuple(run.arms),
                overrides=overrides,
                swarm=run.swarm,
            )
        )
    return cases


def _checked(case: Case, at: str, seed: int) -> Case:
    """The case with its arms in the configuration's order; by default those that are expected to pass."""
    config = _resolved(case, at, seed)
    named = config.arms.named
    for arm in case.arms:
        if arm not in named:
            raise ConfigError(f"{at}.arms: {case.config} has no arm {arm!r}; choose {', '.join(named)}")
        if config.arms.record(arm).expect == "fail":
            raise ConfigError(f"{at}.arms: {arm} is expected to fail; make it the canary, or leave it out")
    chosen = [arm for arm in named if (arm in case.arms or not case.arms) and named[arm].expect == "pass"]
    if not chosen:
        raise ConfigError(f"{at}.config: {case.config} has no arm that is expected to pass; name another one")
    return msgspec.structs.replace(case, arms=tuple(chosen))


def _checked_canary(table: _Canary) -> tuple[Case, int]:
    """The canary as a case, whose arm is expected to fail, and its seed."""
    at = "nightly.canary"
    settings = alternatives_of(table.set, f"{at}.set")
    several = next((key for key, values in settings.items() if len(values) > 1), None)
    if several:
        raise ConfigError(f"{at}.set.{several}: gives alternatives, and there is one canary; give one value")
    overrides = tuple(f"{key}={values[0]}" for key, values in settings.items())
    case = Case(name=CANARY, config=table.config, arms=(table.arm,), overrides=overrides)
    config = _resolved(case, at, table.seed)
    if table.arm not in config.arms.named:
        raise ConfigError(
            f"{at}.arm: {table.config} has no arm {table.arm!r}; choose {', '.join(config.arms.named)}"
        )
    if config.arms.record(table.arm).expect == "fail":
        return case, config.seed
    foreseen = msgspec.structs.replace(case, overrides=(*overrides, f'arms.{table.arm}.expect="fail"'))
    return foreseen, _resolved(foreseen, at, table.seed).seed


def _resolved(case: Case, at: str, seed: int | None) -> Config:
    try:
        return case.resolve(seed)
    except ConfigError as error:
        raise ConfigError(f"{at}: {error}") from None
