"""Is each fault found at each seed? A table of faults by seeds.

    python scripts/fault_seeds.py [--config smoke] [--arm patched] [--seeds 1-10] [--fault F]... [--launcher local]

Runs one arm of a configuration with each named fault that one rank can have and whose base is `paged`, in this
process's children, and stops a run at its first finding. A cell says which rules fired at the faulty operation; `!`
stands behind what fired elsewhere alone, `-` for a fault that nobody saw. The last rows are the clean twins.
Exit code 0: every cell has a finding of a rule that the catalogue expects, and no twin has any. Else 1; 2: usage.

With --launcher each cell is the command `kvstress run CONFIG --fault F --launcher L` as a user types it. It must end
with exit code 1 and a verdict whose reasons name an expected rule, its twin with exit code 0. A cell names the expected
rules that the verdict names, or says how the command ended.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

import msgspec
from rich.console import Console
from rich.table import Table

from stress.config import ConfigError, load_config
from stress.config_checks import check_config
from stress.fault_catalogue import FAULTS
from stress.matrix.cell import Cell, run_cell
from stress.matrix.row import fired_in_time
from stress.seed_range import seed_range

BASE = "paged"
Row = tuple[
    str, list[tuple[str, bool]]
]  # its name, and a cell a seed: what it says, and whether that is as promised


def run(config_name: str, arm: str, needs: tuple[str, ...], fault: str, seed: int) -> Cell:
    """One run of the arm with the fault (`dry:F06`: a clean twin), stopped at its first finding."""
    config = load_config(config_name, ["check.on_finding=stop", *needs], seed=seed)
    faulty = msgspec.structs.replace(config.arms.named[arm], fault=fault, expect="pass")
    arms = msgspec.structs.replace(config.arms, named={arm: faulty})
    return run_cell(check_config(msgspec.structs.replace(config, arms=arms)), arm)


def found(cell: Cell, fault: str) -> tuple[str, bool]:
    """What a cell says, and whether an expected rule fired at the faulty operation, or later if it is a late one."""
    in_time = dict.fromkeys(one.detector for one in fired_in_time(fault, cell))
    elsewhere = dict.fromkeys(one.detector for one in cell.fired)
    holds = any(rule in FAULTS[fault].rules for rule in in_time)
    text = " ".join(in_time) or " ".join(f"{rule}!" for rule in elsewhere)
    return text or ("-" if fault in cell.reached else "never"), holds


def rows_in_process(given: argparse.Namespace, seeds: range, groups: dict) -> Iterator[Row]:
    """Each fault, each clean twin, and how many triggers it came to; as many runs at a time as there are cores."""
    with ProcessPoolExecutor(os.cpu_count(), mp_context=multiprocessing.get_context("forkserver")) as pool:
        for needs, faults in groups.items():
            one = partial(run, given.config, given.arm, needs)
            for fault in faults:
                cells = pool.map(one, [fault] * len(seeds), seeds)
                yield fault, [found(cell, fault) for cell in cells]
            twins = list(pool.map(one, [f"dry:{'+'.join(faults)}"] * len(seeds), seeds))
            told = [f"{twin.findings} findings" if twin.failed else "clean" for twin in twins]
            yield _twin(needs), [(text, text == "clean") for text in told]
            yield "reaches", [(f"{len(twin.reached)} of {len(faults)}", True) for twin in twins]


def rows_of_commands(given: argparse.Namespace, seeds: range, groups: dict) -> Iterator[Row]:
    """Each fault and each clean twin, one command at a time: it has processes of its own."""
    for needs, faults in groups.items():
        for fault in (*faults, f"dry:{'+'.join(faults)}"):
            yield (
                _twin(needs) if fault.startswith("dry:") else fault,
                [command_cell(given, fault, seed) for seed in seeds],
            )


def command_cell(given: argparse.Namespace, fault: str, seed: int) -> tuple[str, bool]:
    """What the command's verdict says of one fault and seed, and whether it is as promised."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        command = [*(sys.executable, "-m", "stress", "run", given.config, "--fault", fault)]
        command += ["--launcher", given.launcher, "--seed", str(seed), "--out", str(out)]
        done = subprocess.run(command, capture_output=True, text=True)
        verdict = out / "verdict.json"
        document = json.loads(verdict.read_text()) if verdict.exists() else {"verdict": "none", "reasons": []}
    ended = f"{document['verdict']}, exit {done.returncode}"
    if fault.startswith("dry:"):
        return ended, done.returncode == 0
    named = [
        rule
        for rule in FAULTS[fault].rules
        if any(f"rule {rule} was" in reason for reason in document["reasons"])
    ]
    if done.returncode == 1 and document["verdict"] == "fail" and named:
        return " ".join(named), True
    return ended, False


def chosen_faults(given: argparse.Namespace) -> list[str]:
    """The faults that are asked for. Raises ValueError, one line, for what there is not."""
    arms = load_config(given.config).arms.named
    if given.arm not in arms:
        raise ConfigError(f"--arm {given.arm}: {given.config} has no such arm; choose {', '.join(arms)}")
    for fault in given.fault or ():
        if fault not in FAULTS:
            raise ConfigError(f"--fault {fault}: unknown fault; the faults are {', '.join(FAULTS)}")
    return given.fault or [name for name, facts in FAULTS.items() if facts.config == BASE and facts.one_rank]


def _twin(needs: tuple[str, ...]) -> str:
    return " ".join(("twin", *needs))


def main() -> int:
    parser = argparse.ArgumentParser(description="Is each fault found at each seed?")
    parser.add_argument("--config", default="smoke")
    parser.add_argument("--arm", default="patched")
    parser.add_argument("--seeds", default="1-10")
    parser.add_argument("--fault", action="append")
    parser.add_argument("--launcher", choices=("local", "ray", "inline"))
    given = parser.parse_args()
    try:
        seeds, faults = seed_range(given.seeds), chosen_faults(given)
    except ValueError as error:
        print(f"fault_seeds: {error}", file=sys.stderr)
        return 2
    groups: dict[tuple[str, ...], list[str]] = {}  # what they need -> faults that one twin watches for
    for fault in faults:
        groups.setdefault(FAULTS[fault].needs, []).append(fault)
    table = Table(box=None, pad_edge=False)
    for heading in ("fault", *map(str, seeds)):
        table.add_column(heading, no_wrap=True)
    rows = rows_of_commands if given.launcher else rows_in_process
    good = True
    for name, cells in rows(given, seeds, groups):
        good &= all(holds for _, holds in cells)
        table.add_row(name, *(text for text, _ in cells))
    Console(width=200, highlight=False, soft_wrap=True).print(table)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
