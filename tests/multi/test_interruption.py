"""A run that is ended from outside: it writes what it has, says 130, and leaves nobody behind."""

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
LONG = ("--arm", "patched", "--set", "workload.requests=400000", "--set", "workload.duration_s=100000")


@contextlib.contextmanager
def running(out: Path, launcher: str) -> Iterator[subprocess.Popen]:
    """A run in a session of its own, once every rank has exchanged."""
    command = [
        sys.executable,
        "-m",
        "stress",
        "run",
        "smoke",
        *LONG,
        "--launcher",
        launcher,
        "--out",
        str(out),
    ]
    with subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        try:
            deadline_s = time.monotonic() + 120
            files = [out / "ranks" / f"patched-{rank}.jsonl" for rank in range(2)]
            while not all(file.exists() and '"heartbeat"' in file.read_text() for file in files):
                assert process.poll() is None, process.stderr.read()
                assert time.monotonic() < deadline_s, "no heartbeat"
                time.sleep(0.1)
            yield process
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def verdict_of(out: Path) -> dict:
    return json.loads((out / "verdict.json").read_text())


@pytest.mark.parametrize(
    ("first", "second", "launcher"),
    [
        (signal.SIGINT, signal.SIGINT, "inline"),
        (signal.SIGINT, signal.SIGTERM, "local"),
        (signal.SIGTERM, signal.SIGTERM, "local"),
        (signal.SIGHUP, signal.SIGINT, "local"),
    ],
    ids=lambda value: str(value).removeprefix("Signals."),
)
def test_two_signals_to_the_group_end_one_run_with_its_verdict(
    first: signal.Signals, second: signal.Signals, launcher: str, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    with running(out, launcher) as process:
        at_first = verdict_of(out)
        assert (at_first["verdict"], at_first["reasons"]) == ("unknown", ["The run goes on, or was killed."])
        assert at_first["arms"]["patched"]["ranks"] == []
        everyone = session_of(process.pid)
        os.killpg(process.pid, first)
        time.sleep(0.1)
        os.killpg(process.pid, second)
        _, errors = process.communicate(timeout=60)
        assert process.returncode == 130, errors
        assert "Traceback" not in errors
        assert still_alive(everyone, 15) == []
    document = verdict_of(out)
    assert document["verdict"] == "unknown"
    assert document["reasons"][0] == "The run was interrupted before its end."
    ranks = document["arms"]["patched"]["ranks"]
    assert [rank["status"] for rank in ranks] == ["stopped", "stopped"]
    assert all(rank["operations"] > 0 for rank in ranks)


def test_a_killed_run_leaves_the_verdict_that_it_goes_on(tmp_path: Path) -> None:
    out = tmp_path / "run"
    with running(out, "inline") as process:
        process.kill()
        process.wait(30)
    assert verdict_of(out)["reasons"] == ["The run goes on, or was killed."]
