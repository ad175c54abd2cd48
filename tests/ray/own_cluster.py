"""A Ray cluster of raylets on this machine, as an owner starts it with `ray start`, for tests that join it.

It has its own ports, its own folder (short: the path of a socket has 107 characters) and its own token, and each
raylet leads a session, by which its processes are found and killed. Nothing of it is in this process's environment.
"""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from processes import session_of, still_alive

ROOT = Path(__file__).parents[2]
START_S = 90
CPUS = 4


class OwnCluster:
    """`start_head`, then `start_node` for each further raylet; `end` kills them all."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="kvr", dir="/tmp"))
        self.port, self.dashboard_port, client_port, agent_port = _free_ports(4)
        self.address = f"127.0.0.1:{self.port}"
        self.sessions: list[int] = []  # their leaders: the head's first
        self._head_options = ["--head", f"--port={self.port}"]
        self._head_options += [
            f"--dashboard-port={self.dashboard_port}",
            f"--ray-client-server-port={client_port}",
            # Jobs go through it, and it does not look for another port where that of the default is taken.
            f"--dashboard-agent-listen-port={agent_port}",
        ]
        outside = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
        self.environment = {
            **outside,
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "OMP_NUM_THREADS": "1",
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN": secrets.token_hex(32),
            "RAY_USAGE_STATS_ENABLED": "0",
        }

    def start_head(self) -> None:
        self._start([], self._head_options)

    def start_node(self, prefix: list[str]) -> None:
        """One more raylet, by a command that goes in front of it, such as `unshare -m`."""
        self._start(prefix, [f"--address={self.address}"])

    def client(self, *arguments: str) -> list[str]:
        """A command line of `ray`, with the address of the cluster's job API."""
        return [_ray(), *arguments, f"--address=http://127.0.0.1:{self.dashboard_port}"]

    def raylet(self, node: int) -> int:
        """The pid of a node's raylet; 0 is the head's."""
        (pid,) = [pid for pid in session_of(self.sessions[node]) if _name(pid) == "raylet"]
        return pid

    def log(self) -> str:
        return "\n".join(path.read_text()[-2000:] for path in sorted(self.folder.glob("start-*.log")))

    def end(self) -> list[int]:
        """Kills each session, the head's last; returns the processes that could not be killed."""
        left = []
        for leader in reversed(self.sessions):
            for _ in range(3):  # what was being started while the first round looked
                for pid in session_of(leader):
                    try:
                        os.kill(pid, signal.SIGKILL)
                    except ProcessLookupError:
                        continue
                time.sleep(0.1)
            left += still_alive(session_of(leader), 10)
        shutil.rmtree(self.folder, ignore_errors=True)
        return left

    def _start(self, prefix: list[str], options: list[str]) -> None:
        command = [*prefix, _ray(), "start", "--block", "--node-ip-address=127.0.0.1", *options]
        # Raylets that share a folder take each other's copies of a job's working directory away.
        command += [f"--temp-dir={self.folder}/{len(self.sessions)}"]
        command += [f"--num-cpus={CPUS}", "--num-gpus=0", "--object-store-memory=80000000"]
        command += ["--min-worker-port=0", "--max-worker-port=0"]
        path = self.folder / f"start-{len(self.sessions)}.log"
        with path.open("wb") as log:
            process = subprocess.Popen(
                command, stdout=log, stderr=log, cwd="/", env=self.environment, start_new_session=True
            )
        self.sessions.append(process.pid)
        deadline_s = time.monotonic() + START_S
        while b"Ray runtime started" not in path.read_bytes():
            if process.poll() is not None or time.monotonic() > deadline_s:
                raise RuntimeError(f"ray start did not come up: {self.log()}")
            time.sleep(0.1)


def _ray() -> str:
    return str(Path(sys.executable).parent / "ray")


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def _free_ports(count: int) -> list[int]:
    """Ports that nobody has, below the range from which the system gives ports to connections."""
    listeners = []
    for port in range(20000 + os.getpid() % 4000, 32000):
        listener = socket.socket()
        try:
            listener.bind(("", port))
            listeners.append(listener)
        except OSError:
            listener.close()
        if len(listeners) == count:
            break
    ports = [listener.getsockname()[1] for listener in listeners]
    for listener in listeners:
        listener.close()
    return ports
