"""What level 2 costs in instructions: one rank of the seed run at each level under valgrind, which counts them.

    python tests/benchmark/instructions.py [--requests 150] [--closely 16,1]
    python tests/benchmark/instructions.py --command [--set KEY=VALUE]

Where a machine is shared CPU time varies by a quarter from run to run; instructions repeat to a thousandth, though they
leave out what the checks do to the caches. Each level runs twice, with few requests and with all, and the difference
counts: imports and the plan are the same in both. With `--command` all that `kvstress run seed` does with its ranks in
one process counts, imports, plans, both arms and the verdict among it, as it is seen in `command_cost.py`. Wants
`valgrind` on the PATH, and about a minute and a half a run; 20 minutes for the command.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

FEW = 10
COUNTED = re.compile(r"I\s+refs:\s+([\d,]+)")
RUN = "import sys; import check_cost as c; c.run_s(int(sys.argv[1]), tuple(sys.argv[2:]))"
VERDICTS = (0, 1)  # of a run that came to one


def counted(arguments: list[str], codes: tuple[int, ...] = (0,)) -> int:
    """Instructions of a process of Python with these arguments, which ends with one of the exit codes."""
    command = ["valgrind", "--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null"]
    command += [sys.executable, *arguments]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "0"}
    environment["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    found = COUNTED.findall(done.stderr)  # a child that could not be started counts too, and ends first
    if done.returncode not in codes or not found:
        raise RuntimeError(f"{' '.join(command)}: exit {done.returncode}: {done.stderr[-2000:]}")
    return int(found[-1].replace(",", ""))


def instructions(requests: int, overrides: tuple[str, ...]) -> int:
    """Of a whole process that runs one rank of the seed run."""
    return counted(["-c", RUN, str(requests), *overrides])


def of_command(level: int, overrides: list[str]) -> int:
    """Of `kvstress run seed` with its ranks in one process."""
    with tempfile.TemporaryDirectory() as folder:
        command = ["-m", "stress", "run", "seed", "--launcher", "inline", "--out", f"{folder}/run"]
        for override in (f"check.level={level}", "check.require=[]", *overrides):
            command += ["--set", override]
        return counted(command, VERDICTS)


def of_requests(requests: int, overrides: tuple[str, ...]) -> int:
    """Of all requests but the first few."""
    return instructions(requests, overrides) - instructions(FEW, overrides)


def print_ratio(what: str, none: int, two: int) -> None:
    print(
        f"{what}: {two / 1e6:.0f} million, {two / none:.3f} of level 0; "
        f"the checks are {100 * (1 - none / two):.1f} % of the run",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--requests", type=int, default=150)
    parser.add_argument("--closely", default="16,1")
    parser.add_argument("--command", action="store_true")
    parser.add_argument("--set", dest="overrides", action="append", default=[])
    given = parser.parse_args()
    if shutil.which("valgrind") is None:
        raise SystemExit("instructions: no valgrind on the PATH; install Debian's package of that name")
    if given.overrides and not given.command:
        parser.error("--set goes with --command")
    if given.command:
        with ThreadPoolExecutor() as both:
            none, two = both.map(of_command, (0, 2), [given.overrides] * 2)
        print(f"level 0: {none / 1e6:.0f} million")
        print_ratio("level 2", none, two)
        return
    none = of_requests(given.requests, ("check.level=0",))
    print(f"level 0: {none / 1e6:.0f} million", flush=True)
    for closely in given.closely.split(","):
        two = of_requests(given.requests, ("check.level=2", f"check.closely={closely}"))
        print_ratio(f"level 2, closely = {closely}", none, two)


if __name__ == "__main__":
    main()
