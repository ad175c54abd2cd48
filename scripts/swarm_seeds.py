"""Runs swarm seeds on one engine and prints what each did: operations, findings, marks; and at the end the sum.

    python scripts/swarm_seeds.py [--seeds 1-200] [--operations 20000] [--target reference] [--tree-core python]

A seed's run is one rank of `kvstress run smoke --swarm --seed N`, with so many requests that it issues at least that
many operations (a short pilot says how many). Exit 0: no finding, assert or error, and every mark that the engine can
show was reached by at least one seed. Exit 1: else, with the overrides that were drawn for each seed that is not
clean. Exit 2: usage.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
from concurrent.futures import ProcessPoolExecutor

from stress.check.marks import MARKS
from stress.seed_range import seed_range
from stress.target.name import TargetUnavailable
from stress.target.store import resolve

# Without an end of virtual time, so that more requests always make more operations.
BASE = (
    "layout.tp_size=1",
    "layout.dp_size=1",
    "check.require=[]",
    "record.operations=none",
    "workload.duration_s=100000000",
)
PILOT_REQUESTS = 100
# Of one rank without a peer, the only mark that can't be reached.
NEEDS_PEERS = {"idle_rank"}


def run_seed(seed: int, operations: int, target: str, tree_core: str) -> dict:
    """One seed: what it drew, did and found."""
    pilot = _run(seed, PILOT_REQUESTS, target, tree_core)
    if pilot["wrong"]:
        return pilot
    requests = PILOT_REQUESTS * operations * 11 // (pilot["operations"] * 10) + 1
    found = _run(seed, requests, target, tree_core)
    while found["operations"] < operations and not found["wrong"]:
        requests = requests * 3 // 2
        found = _run(seed, requests, target, tree_core)
    return found


def _run(seed: int, requests: int, target: str, tree_core: str) -> dict:
    from stress.config import load_config
    from stress.matrix.cell import run_cell
    from stress.swarm import swarm_config

    overrides = [*BASE, f"workload.requests={requests}", f"arms.patched.target={target}"]
    if tree_core:
        overrides.append(f"arms.patched.tree_core={tree_core}")
    tree = None if target == "reference" else str(resolve(target))
    config, drawn = swarm_config(load_config("smoke", overrides, seed), overrides)
    cell = run_cell(config, "patched", tree)
    return {
        "seed": seed,
        "requests": requests,
        "operations": cell.issued,
        "findings": cell.findings,
        "wrong": cell.failed or cell.statuses != ["finished"],
        "fired": [f"{one.detector} at {one.operation}" for one in cell.fired],
        "marks": cell.marks,
        "exempt": cell.marks_exempt,
        "drawn": drawn,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", default="1-200")
    parser.add_argument("--operations", type=int, default=20_000)
    parser.add_argument("--target", default="reference")
    parser.add_argument("--tree-core", default="", choices=("", "python", "rust"))
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    given = parser.parse_args()
    try:
        seeds = seed_range(given.seeds)
        if given.operations < 1 or given.jobs < 1:
            raise ValueError("--operations, --jobs: are numbers from 1 on")
        if given.target != "reference":
            resolve(given.target)
    except (ValueError, TargetUnavailable) as error:
        print(f"swarm_seeds: {error}", file=sys.stderr)
        return 2
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    context = multiprocessing.get_context("forkserver" if given.target == "reference" else "spawn")
    wrong, operations, marks, exempt = [], [], dict.fromkeys(MARKS, 0), set(NEEDS_PEERS)
    with ProcessPoolExecutor(given.jobs, mp_context=context) as pool:
        jobs = [
            pool.submit(run_seed, seed, given.operations, given.target, given.tree_core) for seed in seeds
        ]
        for job in jobs:
            found = job.result()
            operations.append(found["operations"])
            exempt |= found["exempt"]
            for mark in found["marks"]:
                marks[mark] = marks.get(mark, 0) + 1
            if found["wrong"]:
                wrong.append(found["seed"])
            what = f"{found['fired']} {' '.join(found['drawn'])}" if found["wrong"] else "clean"
            print(
                f"seed {found['seed']}: {found['requests']} requests, {found['operations']} operations, {what}",
                flush=True,
            )
    missing = [mark for mark, count in marks.items() if not count and mark not in exempt]
    print(
        f"{len(operations)} seeds on {given.target}, {min(operations)} to {max(operations)} operations each, "
        f"{sum(operations)} in all; {len(wrong)} seeds with a finding, an assert or an error: {wrong}"
    )
    print("seeds by mark:", ", ".join(f"{mark} {count}" for mark, count in marks.items()))
    if missing:
        print("never reached:", ", ".join(missing))
    return 1 if wrong or missing else 0


if __name__ == "__main__":
    sys.exit(main())
