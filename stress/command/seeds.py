"""`--seeds N` of `run` and `compare`: the seeds S to S+N-1, each a run of its own in a folder `seed-<seed>/`.

All are planned before the first rank is started. The folder's verdict.json is there from the start, unknown, and is
written again after each seed, so that a kill leaves what was known.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import msgspec

from stress.command.errors import user_errors
from stress.command.execute import (
    INTERRUPTED,
    INTERRUPTED_EARLY,
    Prepared,
    execute,
    plan_workload,
    resolve_trees,
)
from stress.command.options import RunOptions
from stress.config import Config, ConfigError
from stress.config_limits import SEED_MAX
from stress.record import RunDirectory, RunWriteError, make_folder
from stress.seeds import NOT_RUN, Pair, entry_of, seeds_document, unmade

Finish = Callable[[dict[str, Any]], None]


def run_seeds(
    options: RunOptions,
    configured: Callable[[RunOptions], Config],
    arms: list[str],
    pair: Pair | None = None,
    finish: Finish | None = None,
) -> int:
    """Runs all seeds, prints the sum and returns the exit code.

    Args:
        configured: the configuration of options that name one seed.
        arms: the arms to run, by name, in order.
        pair, finish: of a comparison; see stress.command.execute.execute.

    Raises user_errors() before anything is started or written.
    """
    seeds = _seeds(configured(options).seed, options)
    prepared = _prepare(seeds, options, configured, arms)
    first = next(iter(prepared.values())).config
    folder = make_folder(options.out, first.name)
    runs = _SeedRuns(folder, first.name, arms, options, pair, seeds)
    code = runs.run(prepared, finish)
    _show(runs.document, folder, options.as_json)
    return code


def _seeds(first: int, options: RunOptions) -> list[int]:
    if options.verify_determinism:
        raise ConfigError("--verify-determinism: is for one seed; leave it out, or --seeds")
    last = first + options.seeds - 1
    if last > SEED_MAX:
        raise ConfigError(
            f"--seeds {options.seeds}: the last seed would be {last}, and {SEED_MAX} is the largest; give a "
            "smaller --seed"
        )
    return list(range(first, last + 1))


def _prepare(
    seeds: list[int], options: RunOptions, configured: Callable[[RunOptions], Config], arms: list[str]
) -> dict[int, Prepared]:
    """Every seed's configuration and plan, and the trees, which they share. Raises user_errors()."""
    prepared: dict[int, Prepared] = {}
    trees: dict[str, str] | None = None
    for seed in seeds:
        config = configured(msgspec.structs.replace(options, seed=seed))
        try:
            planned = plan_workload(config, options.overrides)
        except user_errors() as error:
            raise ConfigError(f"seed {seed}: {error}") from None
        if trees is None:
            trees = resolve_trees(config, arms, options.launcher)
        prepared[seed] = Prepared(config=config, planned=planned, trees=trees)
    return prepared


class _SeedRuns:
    """The seeds under way, and the sum of what is known of them."""

    def __init__(
        self,
        folder: Path,
        config: str,
        arms: list[str],
        options: RunOptions,
        pair: Pair | None,
        seeds: list[int],
    ) -> None:
        self._folder, self._config, self._arms = folder, config, arms
        self._options, self._pair = options, pair
        self._entries = {seed: unmade(seed, NOT_RUN, pair) for seed in seeds}
        self.document: dict[str, Any] = {}

    def write(self, ended_early: str = "") -> None:
        """Writes the sum of what is known now. Raises RunWriteError."""
        self.document = seeds_document(
            self._config,
            self._options.launcher,
            self._arms,
            list(self._entries.values()),
            self._pair,
            ended_early,
        )
        RunDirectory(self._folder).write_verdict(self.document)

    def run(self, prepared: dict[int, Prepared], finish: Finish | None) -> int:
        """Runs the seeds in order and returns the exit code."""
        interrupted = False
        seed = 0
        try:
            self.write()
            for number, (seed, ready) in enumerate(prepared.items(), start=1):
                began_s = time.monotonic()
                interrupted = self._run_one(seed, ready, finish)
                wall_s = time.monotonic() - began_s
                click.echo(
                    f"seed {seed} ({number} of {len(prepared)}): {self._told(seed)}, {wall_s:.1f} s", err=True
                )
                if interrupted:
                    break
                self.write()
        except KeyboardInterrupt:  # the only one: further signals are ignored
            interrupted = True
        except Exception as error:
            told = " ".join(str(error).split())
            with contextlib.suppress(RunWriteError):  # a full disk: the sum before this seed stays
                self.write(f"The run of seed {seed} was ended by an error: {type(error).__name__}: {told}")
            raise
        if interrupted:
            self.write(INTERRUPTED_EARLY)
            return INTERRUPTED
        return self._exit_code()

    def _run_one(self, seed: int, ready: Prepared, finish: Finish | None) -> bool:
        """Whether the user ended it."""
        name = f"seed-{seed}"
        options = msgspec.structs.replace(self._options, seed=seed, out=str(self._folder / name))
        outcome = execute(ready.config, self._arms, options, finish, ready)
        self._entries[seed] = entry_of(seed, name, outcome.document, self._pair)
        return outcome.interrupted

    def _told(self, seed: int) -> str:
        entry = self._entries[seed]
        return (entry["outcome"] or entry["verdict"]).replace("_", " ")

    def _exit_code(self) -> int:
        from stress.verdict import EXIT_CODES

        if self._pair is not None:
            return self.document["compare"]["exit_code"]
        return EXIT_CODES[self.document["verdict"]]


def _show(document: dict[str, Any], folder: Path, as_json: bool) -> None:
    from stress.seeds_report import print_seeds

    if as_json:
        click.echo(msgspec.json.encode(document))
    else:
        print_seeds(document, folder, sys.stdout)
