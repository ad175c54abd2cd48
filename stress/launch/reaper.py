"""Ends a cluster's processes when the process that owns them is gone, however it went.

Ray ties its daemons to the driver, but two agents that the daemons start outlive a killed driver. So the
owner starts this file as a small program of its own, holds its standard input, and marks the cluster by an
environment variable that all its processes inherit. When the input ends, the reaper kills every process with
the mark. It works by /proc, imports only the standard library, and is run without site packages.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

MARK = "KVSTRESS_CLUSTER"
SEARCH_S = 10.0
QUIET_SEARCHES = 3  # processes that were being started when the first search ran show up in a later one


class Reaper:
    """The owner's side. Without /proc it does nothing, and killed drivers are left to Ray."""

    def __init__(self) -> None:
        self.mark = f"{os.getpid()}-{time.time_ns()}"
        self._process: subprocess.Popen[bytes] | None = None
        if Path("/proc/self/environ").exists():
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", __file__, self.mark],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C in the owner's terminal is not for it
            )

    def close(self) -> None:
        """Ends what is left of the cluster; returns when nothing is. Does nothing the second time."""
        if self._process is None or self._process.stdin is None:
            return
        self._process.stdin.close()
        try:
            self._process.wait(2 * SEARCH_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None


def marked(mark: str) -> list[int]:
    """The processes of this user, less this one, that carry `mark` in their environment."""
    wanted = f"{MARK}={mark}".encode()
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            variables = (entry / "environ").read_bytes().split(b"\0")
        except OSError:  # it ended meanwhile, or is another user's
            continue
        if wanted in variables:
            found.append(int(entry.name))
    return found


def reap(mark: str) -> None:
    """Kills the marked processes, and those that they were about to start."""
    deadline_s = time.monotonic() + SEARCH_S
    quiet = 0
    while quiet < QUIET_SEARCHES and time.monotonic() < deadline_s:
        pids = marked(mark)
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:  # it ended meanwhile
                continue
        quiet = 0 if pids else quiet + 1
        time.sleep(0.05)


if __name__ == "__main__":
    sys.stdin.buffer.read()
    reap(sys.argv[1])
