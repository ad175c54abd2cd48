"""What level 2 costs in instructions: one rank of the seed run at each level under valgrind, which counts them.

    python tests/benchmark/instructions.py [--requests 150] [--closely 16,1]

Where a machine is shared CPU time varies by a quarter from run to run; instructions repeat to a thousandth, though they
leave out what the checks do to the caches. Each level runs twice, with few requests and with all, and the difference
counts: imports and the plan are the same in both. Wants `valgrind` on the PATH, and about a minute and a half a run.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

FEW = 10
COUNTED = re.compile(r"I\s+refs:\s+([\d,]+)")
RUN = "import sys; import check_cost as c; c.run_s(int(sys.argv[1]), tuple(sys.argv[2:]))"


def instructions(requests: int, overrides: tuple[str, ...]) -> int:
    """Of a whole process that runs one rank of the seed run."""
    command = ["valgrind", "--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null"]
    command += [sys.executable, "-c", RUN, str(requests), *overrides]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "0"}
    environment["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    counted = COUNTED.search(done.stderr)
    if done.returncode or counted is None:
        raise RuntimeError(f"{' '.join(command)}: exit {done.returncode}: {done.stderr[-2000:]}")
    return int(counted.group(1).replace(",", ""))


def of_requests(requests: int, overrides: tuple[str, ...]) -> int:
    """Of all requests but the first few."""
    return instructions(requests, overrides) - instructions(FEW, overrides)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--requests", type=int, default=150)
    parser.add_argument("--closely", default="16,1")
    given = parser.parse_args()
    if shutil.which("valgrind") is None:
        raise SystemExit("instructions: no valgrind on the PATH; install Debian's package of that name")
    none = of_requests(given.requests, ("check.level=0",))
    print(f"level 0: {none / 1e6:.0f} million", flush=True)
    for closely in given.closely.split(","):
        two = of_requests(given.requests, ("check.level=2", f"check.closely={closely}"))
        print(
            f"level 2, closely = {closely}: {two / 1e6:.0f} million, {two / none:.3f} of level 0; "
            f"the checks are {100 * (1 - none / two):.1f} % of the run",
            flush=True,
        )


if __name__ == "__main__":
    main()
