"""Is each fault found at each seed? A table of faults by seeds.

    python scripts/fault_seeds.py [--config smoke] [--arm patched] [--seeds 1-10] [--fault F]...

Runs one arm of a configuration with each named fault that one rank can have and whose base is `paged`, in this
process's children, and stops a run at its first finding. A cell says which rules fired at the faulty operation; `!`
stands behind what fired elsewhere alone, `-` for a fault that nobody saw. The last rows are the clean twins.
Exit code 0: every cell has a finding of a rule that the catalogue expects, and no twin has any.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
from concurrent.futures import ProcessPoolExecutor
from functools import partial

import msgspec
from rich.console import Console
from rich.table import Table

from stress.config import load_config
from stress.config_checks import check_config
from stress.fault_catalogue import FAULTS
from stress.matrix.cell import Cell, run_cell

BASE = "paged"


def run(config_name: str, arm: str, needs: tuple[str, ...], fault: str, seed: int) -> Cell:
    """One run of the arm with the fault (`dry:F06`: a clean twin), stopped at its first finding."""
    config = load_config(config_name, ["check.on_finding=stop", *needs], seed=seed)
    faulty = msgspec.structs.replace(config.arms.named[arm], fault=fault, expect="pass")
    arms = msgspec.structs.replace(config.arms, named={arm: faulty})
    return run_cell(check_config(msgspec.structs.replace(config, arms=arms)), arm)


def found(cell: Cell, fault: str) -> tuple[str, bool]:
    """What a cell says, and whether an expected rule fired at the faulty operation, or later if it is a late one."""
    facts, acted = FAULTS[fault], cell.reached.get(fault, {})
    in_time, elsewhere = [], []
    for one in cell.fired:
        at = acted.get(one.rank)
        late = one.detector in facts.late and at is not None and at <= one.noticed
        (in_time if at in (one.operation, one.noticed) or late else elsewhere).append(one.detector)
    holds = any(rule in facts.rules for rule in in_time)
    text = " ".join(dict.fromkeys(in_time)) or " ".join(f"{rule}!" for rule in dict.fromkeys(elsewhere))
    return text or ("-" if acted else "never"), holds


def main() -> int:
    parser = argparse.ArgumentParser(description="Is each fault found at each seed?")
    parser.add_argument("--config", default="smoke")
    parser.add_argument("--arm", default="patched")
    parser.add_argument("--seeds", default="1-10")
    parser.add_argument("--fault", action="append")
    given = parser.parse_args()
    first, _, last = given.seeds.partition("-")
    seeds = range(int(first), int(last or first) + 1)
    faults = given.fault or [
        name for name, facts in FAULTS.items() if facts.config == BASE and facts.one_rank
    ]
    together: dict[tuple[str, ...], list[str]] = {}  # what they need -> faults that one twin watches for
    for fault in faults:
        together.setdefault(FAULTS[fault].needs, []).append(fault)
    table = Table(box=None, pad_edge=False)
    for heading in ("fault", *map(str, seeds)):
        table.add_column(heading, no_wrap=True)
    good = True
    with ProcessPoolExecutor(os.cpu_count(), mp_context=multiprocessing.get_context("forkserver")) as pool:
        twins = []
        for needs, watched in together.items():
            one = partial(run, given.config, given.arm, needs, f"dry:{'+'.join(watched)}")
            twins.append(list(pool.map(one, seeds)))
        for fault in faults:
            one = partial(run, given.config, given.arm, FAULTS[fault].needs)
            cells = [found(cell, fault) for cell in pool.map(one, [fault] * len(seeds), seeds)]
            good &= all(holds for _, holds in cells)
            table.add_row(fault, *(text for text, _ in cells))
    for (needs, watched), cells in zip(together.items(), twins, strict=True):
        name = " ".join(("twin", *needs))
        table.add_row(name, *(f"{twin.findings} findings" if twin.failed else "clean" for twin in cells))
        table.add_row("reaches", *(f"{len(twin.reached)} of {len(watched)}" for twin in cells))
    Console(width=200, highlight=False, soft_wrap=True).print(table)
    return 0 if good and not any(twin.failed for cells in twins for twin in cells) else 1


if __name__ == "__main__":
    sys.exit(main())
