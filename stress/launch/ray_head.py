"""Whether the head of a Ray cluster still answers.

When it does not, each of Ray's calls waits a minute for it, and then Ray ends the process that made the call, with
all that it knew. So a launcher that has seen the head go calls Ray no more: it has the results that came, and
the ranks' files.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import time
from collections.abc import Iterable
from pathlib import Path

LOOK_S = 2.0  # between two looks
CONNECT_TIMEOUT_S = 1.0
GONE_S = 20.0  # without an answer; ranks that have their work done within it still hand in their results


class HeadWatch:
    """Looks now and then at the address of the cluster's control service, "HOST:PORT"."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self.address = address
        self._place = (host.strip("[]"), int(port))
        self._answered_s = self._looked_s = time.monotonic()

    def answers(self) -> bool:
        """Whether somebody takes a connection there now; waits for a second at most."""
        self._looked_s = time.monotonic()
        try:
            socket.create_connection(self._place, CONNECT_TIMEOUT_S).close()
        except OSError:
            return False
        self._answered_s = time.monotonic()
        return True

    def is_gone(self) -> bool:
        """Whether nobody has answered for GONE_S."""
        if time.monotonic() - self._looked_s < LOOK_S or self.answers():
            return False
        return time.monotonic() - self._answered_s > GONE_S


def end_workers(pids: Iterable[int]) -> None:
    """Kills those of this machine's processes that are Ray workers still."""
    for pid in pids:
        with contextlib.suppress(OSError):  # it has ended, or is another user's
            if Path(f"/proc/{pid}/cmdline").read_bytes().startswith(b"ray::"):
                os.kill(pid, signal.SIGKILL)
