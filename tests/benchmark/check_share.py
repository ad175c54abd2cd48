"""What share of one run are the checks: `kvstress run seed` under py-spy, which looks at all its processes in turn.

    python tests/benchmark/check_share.py [--rounds 1] [--hz 20] [--launcher local] [--set workload.requests=800]

Two runs of the same command differ by a quarter on a shared machine, and so does a ratio of two runs. Here the checks
and all else are seen in the same seconds of the same run. A sample is the checks' where the innermost frame of the
project is theirs, or is there for them alone, such as an engine's counts; not where a wrapper has called the target.
Modules are loaded at level 0 too and count as the rest. What the checks do to the rest's caches is not seen:
`command_cost.py` has it in its ratio. Wants `py-spy` on the PATH (`pip install py-spy`).
"""

from __future__ import annotations

import argparse
import collections
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

CHECKS = re.compile(r"\(stress/(probe|check|content)/")
PROJECT = re.compile(r"\((stress|allocator|linker)/")
# What stands in place of a target's method, and calls it: what it calls is not the checks'.
WRAPPERS = frozenset(
    {"call", "lock", "unlock", "_load", "_offload", "_cancel", "_poll", "acquire", "release"}
)
LOADS = re.compile(r"<module> \(|importlib")
TOP = 12
VERDICTS = (0, 1)


def is_the_checks(frames: list[str]) -> bool:
    """Of one sample, from the outermost frame on: `name (file:line)`."""
    of_checks = [at for at, frame in enumerate(frames) if CHECKS.search(frame)]
    if not of_checks or any(LOADS.search(frame) for frame in frames[of_checks[0] :]):
        return False
    name = frames[of_checks[-1]].split(" (")[0].rsplit(".", 1)[-1]
    return name not in WRAPPERS or not any(map(PROJECT.search, frames[of_checks[-1] + 1 :]))


def sampled(launcher: str, hz: int, overrides: list[str]) -> list[tuple[list[str], int]]:
    """Stacks of one run with how often each was seen."""
    with tempfile.TemporaryDirectory() as folder:
        raw = Path(folder, "stacks")
        command = [
            "py-spy",
            "record",
            "--subprocesses",
            "-F",
            "-f",
            "raw",
            "-r",
            str(hz),
            "-o",
            str(raw),
            "--",
        ]
        command += [
            sys.executable,
            "-m",
            "stress",
            "run",
            "seed",
            f"--launcher={launcher}",
            f"--out={folder}/run",
        ]
        for override in ("check.require=[]", *overrides):
            command += ["--set", override]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode not in VERDICTS or not raw.exists():
            raise RuntimeError(f"{' '.join(command)}: exit {done.returncode}: {done.stderr or done.stdout}")
        lines = raw.read_text().splitlines()
    stacks = (line.rsplit(" ", 1) for line in lines)
    return [(stack.split(";"), int(count)) for stack, count in stacks]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--hz", type=int, default=20)
    parser.add_argument("--launcher", choices=("local", "inline"), default="local")
    parser.add_argument("--set", dest="overrides", action="append", default=[])
    given = parser.parse_args()
    if shutil.which("py-spy") is None:
        raise SystemExit("check_share: no py-spy on the PATH; pip install py-spy")
    places: collections.Counter[str] = collections.Counter()
    all_samples = all_checks = 0
    for number in range(given.rounds):
        stacks = sampled(given.launcher, given.hz, given.overrides)
        samples = sum(count for _, count in stacks)
        of_checks = [(frames, count) for frames, count in stacks if is_the_checks(frames)]
        checks = sum(count for _, count in of_checks)
        for frames, count in of_checks:
            places[[frame for frame in frames if CHECKS.search(frame)][-1]] += count
        all_samples, all_checks = all_samples + samples, all_checks + checks
        print(
            f"round {number + 1}: {checks} of {samples} samples, {100 * checks / samples:.1f} %", flush=True
        )
    for place, count in places.most_common(TOP):
        print(f"{100 * count / all_checks:5.1f} % of them in {place}")
    share = all_checks / all_samples
    print(
        f"the checks are {100 * share:.1f} % of the run; that makes it {1 / (1 - share):.2f} of one without them"
    )


if __name__ == "__main__":
    main()
