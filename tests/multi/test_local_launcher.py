"""Ranks in processes of their own: the same exchanges as inline, deaths told apart, nobody left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from processes import session_of, still_alive

from stress.arm_watch import Patience
from stress.coordinator import run_arms
from stress.launch.contract import Launcher, RankOutcome
from stress.launch.inline import InlineLauncher
from stress.launch.local import LocalLauncher
from stress.record import RunDirectory

pytestmark = pytest.mark.multi

HERE = Path(__file__).parent
ENTRY = "launch_ranks:echo_rank"


@pytest.fixture(autouse=True)
def ranks_on_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(HERE))


def collect(launcher: Launcher, ranks: int, limit_s: float = 60) -> dict[int, RankOutcome]:
    """All outcomes, while the ranks still live."""
    outcomes: dict[int, RankOutcome] = {}
    deadline_s = time.monotonic() + limit_s
    while len(outcomes) < ranks and time.monotonic() < deadline_s:
        for outcome in launcher.poll(1.0):
            assert outcome.rank not in outcomes
            outcomes[outcome.rank] = outcome
    return outcomes


def outcomes_of(launcher: Launcher, config) -> dict[int, RankOutcome]:
    from launch_ranks import rank_specs

    ranks = config.layout.tp_size
    try:
        launcher.start(rank_specs(config), ENTRY)
        return collect(launcher, ranks)
    finally:
        launcher.close()


def wait_until(condition: Callable[[], bool], limit_s: float = 60) -> None:
    deadline_s = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline_s, "waited in vain"
        time.sleep(0.05)


@pytest.mark.parametrize("size", [100, 40_000])
def test_local_ranks_hear_what_inline_ranks_hear(size: int) -> None:
    """40,000 x 4 ranks x 4: frames above every fixed size, that change from turn to turn."""
    from launch_ranks import launch_config

    config = launch_config(4, rounds=9, bytes=size)
    inline = outcomes_of(InlineLauncher(), config)
    local = outcomes_of(LocalLauncher(), config)
    assert sorted(local) == [0, 1, 2, 3]
    for rank, outcome in local.items():
        assert outcome.result is not None, outcome.lost
        assert outcome.result.digest == inline[rank].result.digest
        assert not outcome.result.digest_partial
    assert len({outcome.result.pid for outcome in local.values()}) == 4


@pytest.mark.parametrize("victim", [0, 2])
def test_a_killed_rank_costs_nobody_elses_result(victim: int, tmp_path: Path) -> None:
    from launch_ranks import launch_config

    run_dir = RunDirectory.create(tmp_path / "run", "test")
    config = launch_config(4, rounds=6, kill=victim)
    results = run_arms(config, ["a"], LocalLauncher(), run_dir, lambda _: None, entry=ENTRY)["a"]
    lost = results[victim]
    assert (lost.status, lost.message.split(";")[0]) == ("lost", "killed by SIGKILL")
    assert (lost.findings, lost.requests_finished) == ({"I1": 1}, 2)
    survivors = [result for result in results if result.rank != victim]
    assert [result.status for result in survivors] == ["finished"] * 3
    assert all(result.digest_partial for result in survivors)
    twin = launch_config(4, rounds=6, **{"raise": victim})
    alone = outcomes_of(InlineLauncher(), twin)
    assert [result.digest for result in survivors] == [
        alone[result.rank].result.digest for result in survivors
    ]


@pytest.mark.parametrize("fault", ["hang", "freeze"])
def test_a_hanging_rank_is_given_up_and_ended(fault: str, tmp_path: Path) -> None:
    """Asleep, or stopped by SIGSTOP: its threads and its connections stand still, and nothing is closed."""
    from launch_ranks import launch_config

    run_dir = RunDirectory.create(tmp_path / "run", "test")
    results = run_arms(
        launch_config(3, rounds=4, **{fault: 1}),
        ["a"],
        LocalLauncher(exchange_timeout_s=2),
        run_dir,
        lambda _: None,
        entry=ENTRY,
        patience=Patience(stall_s=6),
    )["a"]
    assert [result.status for result in results] == ["finished", "lost", "finished"]
    assert "no sign of life" in results[1].message
    assert still_alive([result.pid for result in results], 0) == []


def test_an_entry_that_raises_on_import_loses_its_ranks_with_the_reason() -> None:
    from launch_ranks import launch_config, rank_specs

    launcher = LocalLauncher()
    try:
        launcher.start(rank_specs(launch_config(2, rounds=1)), "no.such:thing")
        outcomes = collect(launcher, 2)
    finally:
        launcher.close()
    assert ["no.such" in outcomes[rank].lost for rank in (0, 1)] == [True, True]


@pytest.mark.parametrize(
    ("fault", "victim"), [("absent", 1), ("absent", 0), ("stillborn", 2), ("stillborn", 0)]
)
def test_a_rank_that_never_joins_leaves_the_others_alone_at_once(fault: str, victim: int) -> None:
    from launch_ranks import launch_config, rank_specs

    launcher = LocalLauncher()
    try:
        launcher.start(rank_specs(launch_config(3, rounds=4, **{fault: victim})), "launch_ranks:absent_rank")
        first = collect(launcher, 1)
        begun_s = time.monotonic()
        outcomes = first | collect(launcher, 3 - len(first))
        waited_s = time.monotonic() - begun_s
    finally:
        launcher.close()
    reason = {"absent": "does not want to", "stillborn": "killed by SIGKILL"}[fault]
    assert reason in outcomes[victim].lost
    survivors = [outcomes[rank].result for rank in range(3) if rank != victim]
    assert [result.digest_partial for result in survivors] == [True, True]
    assert waited_s < 10  # the time to join is 60 s


def test_stop_leaves_no_rank_and_the_launcher_starts_again() -> None:
    from launch_ranks import launch_config, rank_specs

    launcher = LocalLauncher()
    specs = rank_specs(launch_config(2, rounds=100_000, sleep_s=0.01))
    launcher.start(specs, ENTRY)
    first = list(launcher.pids().values())
    launcher.poll(1.0)
    launcher.stop()
    assert still_alive(first, 0) == []
    launcher.start(specs, ENTRY)
    second = list(launcher.pids().values())
    launcher.close()
    launcher.close()
    assert still_alive(second, 0) == []
    assert not set(first) & set(second)


COORDINATOR = """
import sys
sys.path.insert(0, {here!r})
from launch_ranks import launch_config
from stress.coordinator import Interrupted, run_arms
from stress.launch.contract import make_launcher
from stress.record import RunDirectory
config = launch_config({ranks}, rounds=100_000, sleep_s=0.01)
try:
    launcher = make_launcher({launcher!r}, config)
    run_dir = RunDirectory.open({run_dir!r})
    run_arms(config, ["a"], launcher, run_dir, lambda _: None, entry="launch_ranks:echo_rank")
except Interrupted as interrupted:
    print([result.status for result in interrupted.results["a"]], flush=True)
"""


def start_coordinator(run_dir: RunDirectory, ranks: int, launcher: str) -> subprocess.Popen:
    """A coordinator in a process group of its own, as a terminal would start it."""
    code = COORDINATOR.format(here=str(HERE), ranks=ranks, run_dir=str(run_dir.path), launcher=launcher)
    return subprocess.Popen(
        [sys.executable, "-c", code],
        cwd=HERE.parents[1],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def running_ranks(run_dir: RunDirectory, ranks: int) -> list[int]:
    """The ranks' pids, once each has exchanged."""
    wait_until(lambda: all(run_dir.read_rank("a", rank).heartbeats for rank in range(ranks)))
    return [run_dir.read_rank("a", rank).started.pid for rank in range(ranks)]


def test_ranks_and_server_die_with_a_killed_coordinator(tmp_path: Path) -> None:
    run_dir = RunDirectory.create(tmp_path / "run", "test")
    with start_coordinator(run_dir, 3, "local") as coordinator:
        pids = running_ranks(run_dir, 3)
        everyone = session_of(coordinator.pid)
        assert set(pids) < set(everyone)
        os.kill(coordinator.pid, signal.SIGKILL)
        assert still_alive(everyone, 15) == []


def test_ctrl_c_reaches_the_coordinator_alone(tmp_path: Path) -> None:
    """The whole foreground group gets SIGINT, as from a terminal; the ranks are ended by the coordinator."""
    run_dir = RunDirectory.create(tmp_path / "run", "test")
    with start_coordinator(run_dir, 2, "local") as coordinator:
        running_ranks(run_dir, 2)
        everyone = session_of(coordinator.pid)
        os.killpg(coordinator.pid, signal.SIGINT)
        output, _ = coordinator.communicate(timeout=30)
        assert output == "['stopped', 'stopped']\n"
        assert still_alive(everyone, 15) == []
