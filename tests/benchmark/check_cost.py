"""What the checks cost: one rank of the seed run at each check level, interleaved, as ratios of CPU time to level 0.

    python tests/benchmark/check_cost.py [--requests 1400] [--rounds 3]

Absolute times on a shared machine mean little; the ratio of neighbours in one process does.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "model"))

from rank_driver import run_arm

LEVELS = (0, 1, 2, 3)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--requests", type=int, default=1400)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    shape = ["layout.tp_size=1", "layout.dp_size=1", "workload.concurrency=32", "check.require=[]"]
    shape.append(f"workload.requests={arguments.requests}")
    cpu_s: dict[int, list[float]] = {level: [] for level in LEVELS}
    operations = 0
    for _ in range(arguments.rounds):
        for level in LEVELS:
            start_s = time.process_time()
            results, _ = run_arm("patched", *shape, f"check.level={level}", config="seed")
            cpu_s[level].append(time.process_time() - start_s)
            operations = results[0].operations
    print(f"{arguments.requests} requests, {operations} operations, {arguments.rounds} rounds, CPU time")
    for level in LEVELS:
        ratios = [with_checks / without for with_checks, without in zip(cpu_s[level], cpu_s[0], strict=True)]
        print(
            f"level {level}: median {statistics.median(cpu_s[level]):6.2f} s,"
            f" ratio to level 0 {min(ratios):.2f} .. {statistics.median(ratios):.2f} .. {max(ratios):.2f}"
        )


if __name__ == "__main__":
    main()
