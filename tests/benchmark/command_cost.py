"""What level 2 costs of the whole command: `kvstress run seed` at level 0 and at level 2, CPU of all its processes.

    python tests/benchmark/command_cost.py [--rounds 2] [--launcher local] [--set workload.requests=800]

`check_cost.py` compares one rank's work and nothing else. Here everything that the user waits for is in the bill: the
launcher, eight ranks that import torch and make the plan, both arms, evidence, the verdict. Both levels run at once,
each on its own half of the CPUs, and change places from round to round: a shared machine is as slow for one as for the
other then, where it is twice as slow from one minute to the next. Linux alone: what a command leaves behind is waited
for by the process that started it, so that its CPU time is counted too.
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
from functools import partial

LEVELS = (0, 2)
PR_SET_CHILD_SUBREAPER = 36
LEFT_BEHIND_S = 20  # until what the command has started is gone
VERDICTS = (0, 1)


def command_s(level: int, launcher: str, overrides: list[str]) -> float:
    """CPU seconds of all processes of one run."""
    with tempfile.TemporaryDirectory() as folder:
        started = f"--launcher={launcher}", f"--out={folder}/run"
        command = [sys.executable, "-m", "stress", "run", "seed", *started]
        for override in (f"check.level={level}", "check.require=[]", *overrides):
            command += ["--set", override]
        before_s = _children_s()
        done = subprocess.run(command, capture_output=True, text=True)
        _wait_for_all()
    if done.returncode not in VERDICTS:
        raise RuntimeError(f"{' '.join(command)}: exit {done.returncode}: {done.stderr or done.stdout}")
    return _children_s() - before_s


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


def together_s(cpus_of: dict[int, list[int]], launcher: str, overrides: list[str]) -> dict[int, float]:
    """CPU seconds of one run at each level, both at once, each on these CPUs."""
    running = {}
    for level, cpus in cpus_of.items():
        command = [sys.executable, __file__, f"--alone={level}", f"--launcher={launcher}"]
        command += [part for override in overrides for part in ("--set", override)]
        set_cpus = partial(os.sched_setaffinity, 0, cpus)
        running[level] = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, preexec_fn=set_cpus)
    said = {level: process.communicate()[0] for level, process in running.items()}
    failed = [level for level, process in running.items() if process.returncode]
    if failed:
        raise RuntimeError(f"the run at level {failed[0]} failed; its message stands above")
    return {level: float(seconds) for level, seconds in said.items()}


def halves() -> tuple[list[int], list[int]]:
    """The CPUs that this process may use, in two halves."""
    cpus = sorted(os.sched_getaffinity(0))
    if len(cpus) < 2:
        raise SystemExit("command_cost: the two levels run beside each other, which takes 2 CPUs")
    half = len(cpus) // 2
    return cpus[:half], cpus[half : 2 * half]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--launcher", choices=("local", "ray", "inline"), default="local")
    parser.add_argument("--set", dest="overrides", action="append", default=[])
    parser.add_argument(
        "--alone", type=int, choices=LEVELS, help="print the CPU seconds of one run at this level"
    )
    given = parser.parse_args()
    if given.alone is not None:
        if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
            raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER) failed")
        print(command_s(given.alone, given.launcher, given.overrides))
        return
    places = halves()
    ratios = []
    for number in range(given.rounds):
        cpus_of = dict(zip(LEVELS, places if number % 2 else places[::-1], strict=True))
        used_s = together_s(cpus_of, given.launcher, given.overrides)
        none, two = (used_s[level] for level in LEVELS)
        ratios.append(two / none)
        print(f"round {number + 1}: {none:.1f} and {two:.1f} s of CPU, {ratios[-1]:.2f}", flush=True)
    mean = statistics.geometric_mean(ratios)
    print(
        f"\nlevel 2 to level 0, kvstress run seed --launcher {given.launcher}: {mean:.2f} in the mean, "
        f"{min(ratios):.2f} .. {max(ratios):.2f}; the checks are {100 * (1 - 1 / mean):.0f} % of the run"
    )


if __name__ == "__main__":
    main()
