"""What level 2 costs of the whole command: `kvstress run seed` at level 0 and 2 in turn, CPU of all its processes.

    python tests/benchmark/command_cost.py [--rounds 2] [--launcher local] [--set workload.requests=800]

`check_cost.py` compares one rank's work and nothing else. Here everything that the user waits for is in the bill: the
launcher, eight ranks that import torch and make the plan, both arms, evidence, the verdict. Linux alone: what the
command leaves behind is waited for by this process, so that its CPU time is counted too.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time

LEVELS = (0, 2)
PR_SET_CHILD_SUBREAPER = 36
LEFT_BEHIND_S = 20  # until what the command has started is gone
VERDICTS = (0, 1)


def command_s(level: int, launcher: str, overrides: list[str]) -> tuple[float, float]:
    """CPU seconds of all processes of one run, and its wall seconds."""
    with tempfile.TemporaryDirectory() as folder:
        started = f"--launcher={launcher}", f"--out={folder}/run"
        command = [sys.executable, "-m", "stress", "run", "seed", *started]
        for override in (f"check.level={level}", "check.require=[]", *overrides):
            command += ["--set", override]
        before_s, start_s = _children_s(), time.monotonic()
        done = subprocess.run(command, capture_output=True, text=True)
        wall_s = time.monotonic() - start_s
        _wait_for_all()
    if done.returncode not in VERDICTS:
        raise RuntimeError(f"{' '.join(command)}: exit {done.returncode}: {done.stderr or done.stdout}")
    return _children_s() - before_s, wall_s


def _children_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _wait_for_all() -> None:
    """Launchers that outlive their command by a moment become children of this process."""
    end_s = time.monotonic() + LEFT_BEHIND_S
    while time.monotonic() < end_s:
        try:
            if os.waitpid(-1, os.WNOHANG)[0] == 0:
                time.sleep(0.05)
        except ChildProcessError:
            return
    raise RuntimeError(f"the run left processes behind that are still there after {LEFT_BEHIND_S} s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--launcher", choices=("local", "ray", "inline"), default="local")
    parser.add_argument("--set", dest="overrides", action="append", default=[])
    given = parser.parse_args()
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER) failed")
    cpu_s: dict[int, list[float]] = {level: [] for level in LEVELS}
    for number in range(given.rounds):
        for level in LEVELS:
            used_s, wall_s = command_s(level, given.launcher, given.overrides)
            cpu_s[level].append(used_s)
            print(f"round {number + 1}, level {level}: {used_s:.1f} s of CPU, {wall_s:.1f} s", flush=True)
    ratios = sorted(two / none for none, two in zip(cpu_s[0], cpu_s[2], strict=True))
    fastest = min(cpu_s[2]) / min(cpu_s[0])
    print(
        f"\nlevel 2 to level 0, kvstress run seed --launcher {given.launcher}: fastest {fastest:.2f}, "
        f"median {statistics.median(ratios):.2f}, {ratios[0]:.2f} .. {ratios[-1]:.2f}; "
        f"the checks are {100 * (1 - 1 / fastest):.0f} % of the run"
    )


if __name__ == "__main__":
    main()
