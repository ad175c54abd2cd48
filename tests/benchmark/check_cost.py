"""What the checks cost: one rank of the seed run at each level, a bare allocator in a loop, and each rule by itself.

    OMP_NUM_THREADS=1 python tests/benchmark/check_cost.py [--requests 700] [--rounds 5] [--only levels]

Levels are interleaved in one process and compared by CPU time: absolute times on a shared machine mean little, the
ratio of neighbours does. The tables are those of docs/checks.md.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "model"))

from bare_cost import bare_s
from rank_driver import run_arm
from rule_cost import Kept, rule_shares

from stress.engine.reference.engine import ReferenceEngine

LEVELS = (0, 1, 2, 3)
SECTIONS = ("levels", "bare", "rules")


def run_s(requests: int, level: int) -> tuple[float, int]:
    """CPU seconds and operations of one rank of the seed run."""
    shape = ["layout.tp_size=1", "layout.dp_size=1", "workload.concurrency=32", "check.require=[]"]
    start_s = time.process_time()
    results, _ = run_arm(
        "patched", *shape, f"workload.requests={requests}", f"check.level={level}", config="seed"
    )
    took_s = time.process_time() - start_s
    if results[0].findings or results[0].checker_crashed:
        raise RuntimeError(f"the run is clean, but: {results[0].findings} {results[0].checker_crashed}")
    return took_s, results[0].operations


def print_ratios(took_s: dict[int, list[float]]) -> None:
    """By level: fastest to fastest, and the median of the rounds' own ratios with their range."""
    print("| level | ratio of the fastest | median of rounds | range |\n|-|-|-|-|")
    for level, times in took_s.items():
        ratios = sorted(some / none for some, none in zip(times, took_s[0], strict=True))
        fastest = min(times) / min(took_s[0])
        print(
            f"| {level} | {fastest:.2f} | {statistics.median(ratios):.2f} | {ratios[0]:.2f} .. {ratios[-1]:.2f} |"
        )


def levels(requests: int, rounds: int) -> None:
    took_s: dict[int, list[float]] = {level: [] for level in LEVELS}
    for _ in range(rounds):
        for level in LEVELS:
            seconds, operations = run_s(requests, level)
            took_s[level].append(seconds)
    print(f"\nOne rank of the seed run, {requests} requests, {operations} operations, {rounds} rounds:\n")
    print_ratios(took_s)


def bare(rounds: int) -> None:
    for pages_each in (2, 64):
        took_s: dict[int, list[float]] = {level: [] for level in LEVELS}
        for _ in range(rounds):
            for level in LEVELS:
                took_s[level].append(bare_s(level, pages_each, 100))
        print(
            f"\nThe bare allocator, 16 prompts of {pages_each} pages lent and freed in a group, {rounds} rounds:\n"
        )
        print_ratios(took_s)


def rules(requests: int, rounds: int) -> None:
    run_level_0_s = min(run_s(requests, 0)[0] for _ in range(rounds))
    with Kept() as kept:
        run_s(requests, 2)
    shares = rule_shares(kept, ReferenceEngine.observes | {"offsets"}, rounds)
    print(f"\nThe ledger of level 2 without the probe, in % of level 0, {requests} requests:\n")
    print("| rule | short way | long way |\n|-|-|-|")
    for name, ways in shares.items():
        short, long = (100 * seconds / run_level_0_s for seconds in ways)
        print(f"| {name} | {short:.1f} | {long:.1f} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--requests", type=int, default=700)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", choices=SECTIONS)
    arguments = parser.parse_args()
    if arguments.only in (None, "levels"):
        levels(arguments.requests, arguments.rounds)
    if arguments.only in (None, "bare"):
        bare(arguments.rounds)
    if arguments.only in (None, "rules"):
        rules(arguments.requests, arguments.rounds)


if __name__ == "__main__":
    main()
