"""What the checks cost: one rank of the seed run at each level, a bare allocator in a loop, and each rule by itself.

    OMP_NUM_THREADS=1 python tests/benchmark/check_cost.py [--requests 700] [--rounds 5] [--only levels]
    ... --only levels --target sglang==0.5.23    # the same of `sglang-seed`, on the real engine

Levels are interleaved in one process and compared by CPU time: absolute times on a shared machine mean little, the
ratio of neighbours does. The tables are those of docs/checks.md.
"""

from __future__ import annotations

import argparse
import statistics
import time

from bare_cost import bare_s
from rule_cost import Kept, rule_shares

from stress.config import load_config
from stress.engine.reference.engine import ReferenceEngine
from stress.launch.rank_process import settle_process
from stress.matrix.drive import drive
from stress.target.store import resolve

LEVELS = (0, 1, 2, 3)
SECTIONS = ("levels", "bare", "rules")
REFERENCE = "reference"
# What is printed -> overrides. Of one request in sixteen, in eight, or of each one, is watched what is its own.
WAYS = {
    "0": ("check.level=0",),
    "1": ("check.level=1", "check.closely=1"),
    "2, closely = 16": ("check.level=2", "check.closely=16"),
    "2, closely = 8": ("check.level=2", "check.closely=8"),
    "2, closely = 1": ("check.level=2", "check.closely=1"),
    "3": ("check.level=3", "check.closely=1"),
}
SHAPE = ("layout.tp_size=1", "layout.dp_size=1", "workload.concurrency=32", "check.require=[]")


def run_s(requests: int, way: tuple[str, ...], target: str = REFERENCE) -> tuple[float, int]:
    """CPU seconds and operations of one rank of the seed run."""
    name, arm = ("seed", "patched") if target == REFERENCE else ("sglang-seed", "shipped")
    chosen = (f"arms.{arm}.target={target}", f"workload.requests={requests}")
    config = load_config(name, [*SHAPE, *chosen, *way])
    tree = None if target == REFERENCE else str(resolve(target))
    start_s = time.process_time()
    (result,) = drive(config, arm, lambda rank: lambda line: None, tree)
    took_s = time.process_time() - start_s
    if result.findings or result.checker_crashed:
        raise RuntimeError(f"the run is clean, but: {result.findings} {result.checker_crashed}")
    return took_s, result.operations


def print_ratios(took_s: dict) -> None:
    """By level: fastest to fastest, and the median of the rounds' own ratios with their range."""
    print("| level | ratio of the fastest | median of rounds | range |\n|-|-|-|-|")
    none_s = next(iter(took_s.values()))
    for level, times in took_s.items():
        ratios = sorted(some / none for some, none in zip(times, none_s, strict=False))
        fastest = min(times) / min(none_s)
        print(
            f"| {level} | {fastest:.2f} | {statistics.median(ratios):.2f} | {ratios[0]:.2f} .. {ratios[-1]:.2f} |"
        )


def levels(requests: int, rounds: int, target: str) -> None:
    ways = {name: way for name, way in WAYS.items() if target == REFERENCE or name != "3"}
    took_s: dict[str, list[float]] = {name: [] for name in ways}
    run_s(requests // 4 + 1, WAYS["2, closely = 1"], target)  # what is imported and made once
    for _ in range(rounds):
        for name, way in ways.items():
            if name == "3" and took_s[name]:
                continue  # one is enough: it takes longer than all others together
            seconds, operations = run_s(requests, way, target)
            took_s[name].append(seconds)
    run = f"{requests} requests, {operations} operations, {rounds} rounds"
    print(f"\nOne rank of the seed run on {target}, {run}:\n")
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
    run_level_0_s = min(run_s(requests, WAYS["0"])[0] for _ in range(rounds))
    with Kept() as kept:
        run_s(requests, WAYS["2, closely = 1"])
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
    parser.add_argument("--target", default=REFERENCE)
    arguments = parser.parse_args()
    settle_process()
    if arguments.only in (None, "levels"):
        levels(arguments.requests, arguments.rounds, arguments.target)
    if arguments.only in (None, "bare"):
        bare(arguments.rounds)
    if arguments.only in (None, "rules"):
        rules(arguments.requests, arguments.rounds)


if __name__ == "__main__":
    main()
