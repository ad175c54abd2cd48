"""Ranks of a real run that are killed, stopped or out of memory: each is told, costs nobody else's result, and never
makes a pass."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest
from kill_loop import kill_loop, rank_tail
from processes import still_alive

from stress.arm_watch import ArmProgress
from stress.config import load_config
from stress.coordinator import ENTRY, run_arms
from stress.launch.contract import make_launcher
from stress.record import RunDirectory
from stress.verdict import EXIT_CODES, make_verdict

pytestmark = pytest.mark.multi

ARM = "patched"
RANKS = 3
SMALL = (
    f"layout.tp_size={RANKS}",
    f"layout.dp_size={RANKS}",
    "check.require=[]",
    "workload.requests=300",
)


@pytest.fixture(autouse=True)
def ranks_on_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parent))


def verdict_of(folder: Path, entry: str = ENTRY, progress=lambda _: None, *overrides: str) -> dict:
    """The verdict document of smoke's passing arm with the ranks of `entry`; no rank is left."""
    config = load_config("smoke", [*SMALL, *overrides])
    run_dir = RunDirectory.create(folder, "smoke")
    results = run_arms(
        config,
        [ARM],
        make_launcher("local", config),
        run_dir,
        progress,
        entry=entry,
    )
    assert still_alive([result.pid for result in results[ARM] if result.pid], 0) == []
    return make_verdict(config, results, arms=[ARM], launcher="local")


def ranks_of(document: dict) -> list[dict]:
    return document["arms"][ARM]["ranks"]


@pytest.mark.slow
def test_kills_at_any_moment_never_pass_and_lose_no_other_rank(tmp_path: Path) -> None:
    """Four of the hundred of `python tests/multi/kill_loop.py`."""
    kills = list(kill_loop(tmp_path, kills=4, ranks=2, seed=1))
    assert [kill for kill in kills if kill.wrong] == []
    assert any(kill.struck for kill in kills)


def test_a_stopped_rank_is_named_within_its_deadline(tmp_path: Path) -> None:
    """SIGSTOP: its connections stay open and it says nothing. The others give it up, then the coordinator does."""
    stopped_s: list[float] = []

    def stop_once(_progress: ArmProgress) -> None:
        started = rank_tail(tmp_path / "run", 1).read().started
        if started is not None and not stopped_s:
            os.kill(started.pid, signal.SIGSTOP)
            stopped_s.append(time.monotonic())

    deadlines = ("deadlines.exchange_s=2", "deadlines.loss_s=3", "deadlines.stall_s=10000")
    long = "workload.requests=2000"  # it is at work when it is stopped
    document = verdict_of(tmp_path / "run", ENTRY, stop_once, *deadlines, long)
    assert (document["verdict"], EXIT_CODES[document["verdict"]]) == ("unknown", 3)
    assert [rank["status"] for rank in ranks_of(document)] == ["finished", "lost", "finished"]
    assert any("rank 1 lost: no sign of life for 3 s" in reason for reason in document["reasons"])
    assert (
        time.monotonic() - stopped_s[0] < 90
    )  # 2 s of exchange, 3 s of silence, and the survivors' own work


@pytest.mark.parametrize(
    ("death", "why"), [("exits", "exited with 137"), ("lacks_memory", "MemoryError: can't allocate 64 GiB")]
)
def test_a_rank_out_of_memory_is_lost_and_told(death: str, why: str, tmp_path: Path) -> None:
    document = verdict_of(tmp_path / "run", f"dying_ranks:{death}")
    assert (document["verdict"], EXIT_CODES[document["verdict"]]) == ("unknown", 3)
    assert [rank["status"] for rank in ranks_of(document)] == ["finished", "lost", "finished"]
    assert any(f"rank 1 lost: {why}" in reason or why in reason for reason in document["reasons"])
    assert ranks_of(document)[1]["operations"] > 0  # from its last heartbeat


def test_a_target_out_of_memory_is_an_error_of_the_target(tmp_path: Path) -> None:
    document = verdict_of(tmp_path / "run", "dying_ranks:target_lacks_memory")
    assert document["verdict"] == "fail"
    assert [rank["status"] for rank in ranks_of(document)] == ["finished", "errored", "finished"]
    assert any("MemoryError: can't allocate 64 GiB" in reason for reason in document["reasons"])


def test_a_death_while_the_group_is_formed_leaves_nobody_waiting(tmp_path: Path) -> None:
    """One that gave up joining leaves the group, so that one that had joined does not wait for it."""
    ended_s: list[float] = []
    begun_s = time.monotonic()
    document = verdict_of(
        tmp_path / "run", "dying_ranks:dies_once_formed", lambda _: ended_s.append(time.monotonic())
    )
    assert [rank["status"] for rank in ranks_of(document)] == ["finished", "lost", "finished"]
    assert ended_s[-1] - begun_s < 90  # the time to wait for a peer is 120 s
