"""What many ranks cost their coordinator: the passing arm of smoke on 8, 32 and 64 local ranks, CPU time a rank.

    python tests/benchmark/many_ranks.py [--ranks 8 32 64] [--requests 400]

Measured is this process alone, which starts the ranks, follows their files and gathers. What the ranks themselves
take is not in it. Ratios are to the first number of ranks; wall time is the whole arm's, on a machine that may be busy.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from stress.config import load_config
from stress.coordinator import run_arms
from stress.launch.local import LocalLauncher
from stress.record import RunDirectory

ARM = "patched"


class Cost(NamedTuple):
    """Of one arm. `files_max`: the most files that the coordinator had open."""

    ranks: int
    finished: int
    cpu_s: float
    wall_s: float
    files_max: int


def measure(ranks: int, requests: int, folder: Path) -> Cost:
    """Runs the arm once and returns what its coordinator took. `finished`: ranks that finished."""
    layout = [f"layout.tp_size={ranks}", f"layout.dp_size={ranks}"]
    config = load_config("smoke", [*layout, f"workload.requests={requests}", "check.require=[]"])
    files_max = 0

    def watch(_progress: object) -> None:
        nonlocal files_max
        files_max = max(files_max, len(os.listdir("/proc/self/fd")))

    run_dir = RunDirectory.create(folder / str(ranks), "smoke")
    cpu_s, wall_s = time.process_time(), time.monotonic()
    results = run_arms(config, [ARM], LocalLauncher(), run_dir, watch)[ARM]
    return Cost(
        ranks=ranks,
        finished=sum(result.status == "finished" for result in results),
        cpu_s=time.process_time() - cpu_s,
        wall_s=time.monotonic() - wall_s,
        files_max=files_max,
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, nargs="+", default=[8, 32, 64])
    parser.add_argument("--requests", type=int, default=400)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        measure(2, 10, Path(folder))  # starts the fork server, which is not a rank's cost
        costs = [measure(ranks, given.requests, Path(folder)) for ranks in given.ranks]
    first = costs[0].cpu_s / costs[0].ranks
    for cost in costs:
        each = cost.cpu_s / cost.ranks
        print(
            f"{cost.ranks:4} ranks, {cost.finished} finished: coordinator {cost.cpu_s:.2f} s of CPU,"
            f" {1000 * each:.1f} ms a rank, ratio {each / first:.2f}; {cost.files_max} open files;"
            f" {cost.wall_s:.1f} s"
        )
    return 0 if all(cost.finished == cost.ranks for cost in costs) else 1


if __name__ == "__main__":
    sys.exit(main())
