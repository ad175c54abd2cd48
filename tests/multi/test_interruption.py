"""A run that is ended from outside: it writes what it has, says 130, and leaves nobody behind."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from processes import session_of, still_alive

pytestmark = pytest.mark.multi

ROOT = Path(__file__).parents[2]
# Minutes of work for two ranks, and a plan that takes each of them well under a second to draw.
LONG = ("--arm", "patched", "--set", "workload.requests=40000", "--set", "workload.duration_s=10000")


def all_exchanged(out: Path) -> bool:
    files = [out / "ranks" / f"patched-{rank}.jsonl" for rank in range(2)]
    return all(file.exists() and '"heartbeat"' in file.read_text() for file in files)


@contextlib.contextmanager
def running(
    out: Path, launcher: str, is_due: Callable[[Path], bool] | None = None
) -> Iterator[subprocess.Popen]:
    """A run in a session of its own, once every rank has exchanged, or `is_due(out)`."""
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
            while not (is_due or all_exchanged)(out):
                assert process.poll() is None, process.stderr.read()
                assert time.monotonic() < deadline_s, "no heartbeat"
                time.sleep(0.01)
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


@pytest.mark.parametrize(
    "is_due",
    [
        lambda out: (out / "verdict.json").exists(),
        lambda out: any(out.glob("ranks/*.jsonl")),
    ],
    ids=["no rank yet", "some ranks"],
)
@pytest.mark.parametrize("ending", [signal.SIGKILL, signal.SIGTERM])
def test_a_signal_while_the_ranks_are_started_leaves_nobody_and_no_pass(
    ending: signal.Signals, is_due: Callable[[Path], bool], tmp_path: Path
) -> None:
    out = tmp_path / "run"
    with running(out, "local", is_due) as process:
        process.send_signal(ending)
        assert process.wait(60) == (130 if ending is signal.SIGTERM else -signal.SIGKILL)
        deadline_s = time.monotonic() + 30
        while session_of(process.pid):  # also those that were being started at that moment
            assert time.monotonic() < deadline_s
            time.sleep(0.05)
    document = verdict_of(out)
    told = "was interrupted before its end" if ending is signal.SIGTERM else "goes on, or was killed"
    assert (document["verdict"], document["reasons"][0]) == ("unknown", f"The run {told}.")
