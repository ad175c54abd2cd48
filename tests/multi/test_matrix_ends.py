"""A matrix that is ended from outside: it shows the rows it has, says which end it was, and leaves nobody behind."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from processes import session_of, still_alive

pytestmark = pytest.mark.multi

ROOT = Path(__file__).parents[2]


@contextlib.contextmanager
def running() -> Iterator[subprocess.Popen]:
    """A matrix in a session of its own that has made its first row."""
    command = [sys.executable, "-m", "stress", "matrix", "--fault", "F05", "--fault", "F06", "--fault", "F17"]
    with subprocess.Popen(
        [*command, "--json"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        # Who runs the tests in the background has SIGINT ignored, and children inherit that.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    ) as process:
        try:
            assert process.stderr.readline().startswith("1/6 F05 idle: I4, found")
            yield process
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def workers_of(process: subprocess.Popen) -> list[int]:
    """Children of its fork server."""
    parents = {}
    for pid in session_of(process.pid):
        with contextlib.suppress(FileNotFoundError):
            parents[pid] = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return [pid for pid, parent in parents.items() if parents.get(parent) == process.pid]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_matrix_shows_its_rows_soon(number: signal.Signals) -> None:
    with running() as process:
        session = session_of(process.pid)
        asked_s = time.monotonic()
        os.kill(process.pid, number)
        out, err = process.communicate(timeout=60)
        assert time.monotonic() - asked_s < 10, "it waits for no row"
        assert process.returncode == 130
        rows = json.loads(out)["rows"]
        assert (rows[0]["fault"], rows[0]["holds"]) == ("F05", True)
        assert err.splitlines()[-1] == (
            f"kvstress: the matrix was interrupted; {len(rows)} of 6 rows were made"
        )
        assert still_alive(session, 5) == []


def test_a_killed_worker_costs_no_row_that_was_made() -> None:
    with running() as process:
        os.kill(workers_of(process)[0], signal.SIGKILL)
        out, err = process.communicate(timeout=60)
        assert process.returncode == 3
        document = json.loads(out)
        assert document["rows"][0]["fault"] == "F05"
        assert "lost a process" in document["ended_early"]
        assert "Traceback" not in err
        assert err.splitlines()[-1].startswith("kvstress: the matrix lost a process, killed from outside")


def test_nobody_outlives_a_matrix_that_was_killed() -> None:
    with running() as process:
        session = session_of(process.pid)
        assert len(session) > 3, "itself, its fork server and workers"
        process.kill()
        process.wait()
        assert still_alive(session, 10) == []
