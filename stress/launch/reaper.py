"""Ends a cluster's processes when the process that owns them is gone, however it went.

Ray ties its daemons to the driver, but two agents that the daemons start outlive a killed driver. So the
owner starts this file as a small program of its own, holds its standard input, and marks the cluster by an
environment variable that its processes inherit. Some of them write their title over their environment, so the
reaper also follows the family tree while it stands, and remembers whom it saw. When the input ends, it kills
them all. It works by /proc, imports only the standard library, and is run without site packages.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

MARK = "KVSTRESS_CLUSTER"
LOOK_S = 1.0  # between two looks at the family while its owner lives; one takes some milliseconds
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


class Family:
    """The processes with a mark, and all their descendants, as far as they were seen."""

    def __init__(self, mark: str) -> None:
        self._variable = f"{MARK}={mark}".encode()
        self._members: dict[int, str] = {}  # pid -> start time, so that a reused pid is no member

    def look(self) -> list[int]:
        """Adds those that are new and forgets those that have ended; returns the members, which are alive."""
        alive, parents = {}, {}
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and (stat := _read(entry / "stat")):
                # After the name, which is in brackets: state, parent, ...; the start time is the 20th of these.
                fields = stat.rpartition(b")")[2].split()
                if fields[0] not in (b"Z", b"X"):
                    alive[int(entry.name)] = fields[19].decode()
                    parents[int(entry.name)] = int(fields[1])
        self._members = {pid: start for pid, start in self._members.items() if alive.get(pid) == start}
        for pid in alive:
            if self._variable in _read(Path("/proc") / str(pid) / "environ").split(b"\0"):
                self._members[pid] = alive[pid]
        joined = True
        while joined:
            joined = False
            for pid, parent in parents.items():
                if parent in self._members and pid not in self._members:
                    self._members[pid] = alive[pid]
                    joined = True
        return sorted(self._members)


def _read(path: Path) -> bytes:
    """The file's bytes; none where the process has ended or belongs to another user."""
    try:
        return path.read_bytes()
    except OSError:
        return b""


def reap(family: Family) -> None:
    """Kills the family, and those that its members were about to start."""
    deadline_s = time.monotonic() + SEARCH_S
    quiet = 0
    while quiet < QUIET_SEARCHES and time.monotonic() < deadline_s:
        pids = family.look()
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:  # it ended meanwhile
                continue
        quiet = 0 if pids else quiet + 1
        time.sleep(0.05)


if __name__ == "__main__":
    kin = Family(sys.argv[1])
    while not select.select([sys.stdin], [], [], LOOK_S)[0]:
        kin.look()
    reap(kin)
