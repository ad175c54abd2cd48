"""Who is alive, for tests that end processes. Linux: by /proc."""

from __future__ import annotations

import os
import time
from pathlib import Path


def is_alive(pid: int) -> bool:
    """A zombie is not alive."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


def still_alive(pids: list[int], limit_s: float) -> list[int]:
    """Those of `pids` that are alive when all are gone, or the limit is over."""
    deadline_s = time.monotonic() + limit_s
    while (alive := [pid for pid in pids if is_alive(pid)]) and time.monotonic() < deadline_s:
        time.sleep(0.05)
    return alive


def session_of(leader: int) -> list[int]:
    """All live processes of the session that `leader` leads: ranks, servers, daemons, agents."""
    members = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and os.getsid(int(entry.name)) == leader and is_alive(int(entry.name)):
                members.append(int(entry.name))
        except ProcessLookupError:
            continue
    return members
