"""A plain run, beside a cluster that it must not join: results, a killed actor, smoke, two arms at once, kill -9."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from own_cluster import OwnCluster
from processes import session_of, still_alive
from rank_driver import run_arm
from ray_driver import FEW

from stress.launch.inline import InlineLauncher
from stress.record import RankTail, rank_path

pytestmark = pytest.mark.ray

HERE = Path(__file__).parent
LIMIT_S = 240  # a busy machine needs a minute to start a cluster


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("run")


@pytest.fixture(scope="module")
def driver(run_dir: Path, cluster: OwnCluster):
    """The driver, beside a cluster that it must not join; it has printed its lines. Killed at the end in any case."""
    with (
        (run_dir / "stderr").open("wb") as errors,
        subprocess.Popen(
            [sys.executable, str(HERE / "ray_driver.py"), str(run_dir)],
            cwd=HERE.parents[1],
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            start_new_session=True,
        ) as process,
    ):
        limit = threading.Timer(LIMIT_S, process.kill)
        limit.start()
        try:
            lines = [process.stdout.readline() for _ in range(6)]
            assert all(lines), (run_dir / "stderr").read_text()
            process.lines = [json.loads(line) for line in lines]
            yield process
        finally:
            limit.cancel()
            process.kill()


def command_line(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:  # it has ended
        return b""


def inline_results(config) -> list:
    from launch_ranks import rank_specs

    launcher = InlineLauncher()
    launcher.start(rank_specs(config), "launch_ranks:echo_rank")
    ended = {}
    while len(ended) < config.layout.tp_size:
        ended |= {outcome.rank: outcome for outcome in launcher.poll(1.0)}
    return [ended[rank].result for rank in sorted(ended)]


def test_actors_hear_what_inline_ranks_hear(driver, run_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(HERE.parent / "multi"))
    from launch_ranks import launch_config

    whole = driver.lines[0]
    expected = inline_results(launch_config(2, rounds=9, bytes=3000))
    assert whole["results"] == [["finished", result.digest, False] for result in expected]
    assert whole["alive"] == []
    for rank in range(2):
        tail = RankTail(rank_path(run_dir, "whole", rank)).read()
        assert tail.started.pid == whole["pids"][str(rank)]
        assert tail.heartbeats == 9


def test_a_killed_actor_costs_only_its_own_result(driver, run_dir: Path) -> None:
    killed = driver.lines[1]
    assert killed["results"][0][0] == "finished"
    assert killed["results"][0][2] is True
    assert killed["results"][1] is None
    assert killed["lost"][1].startswith("its actor died")
    tail = RankTail(rank_path(run_dir, "killed", 1)).read()
    assert (tail.heartbeats, [finding.rule for finding in tail.findings]) == (2, ["I1"])
    assert tail.started.pid not in driver.lines[0]["pids"].values()


def test_smoke_decides_on_ray_what_it_decides_inline(driver) -> None:
    smoke = driver.lines[2]
    expected = [["finished", result.digest, False] for result in run_arm("patched", FEW)[0]]
    assert smoke["results"] == expected
    assert smoke["alive"] == []


def test_an_actor_killed_before_it_joined_keeps_nobody_waiting(driver) -> None:
    stillborn = driver.lines[3]
    assert stillborn["lost"][1].startswith("its actor died")
    assert (stillborn["results"][0][0], stillborn["results"][0][2]) == ("finished", True)
    assert stillborn["seconds"] < 40  # the time to join is 60 s


def test_a_killed_actor_of_one_arm_leaves_the_arm_beside_it_whole(
    driver, run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(HERE.parent / "multi"))
    from launch_ranks import launch_config

    both = driver.lines[4]
    alone = inline_results(launch_config(2, rounds=9))
    assert sorted(both["pids"]) == ["0", "2", "3", "4"]
    assert both["results"][:2] == [["finished", result.digest, False] for result in alone]
    assert (both["results"][2][0], both["results"][2][2]) == ("finished", True)
    assert both["lost"][3].startswith("its actor died")
    assert RankTail(rank_path(run_dir, "beside", 2)).read().started.pid == both["pids"]["2"]


def test_a_plain_run_joins_no_cluster_that_happens_to_be_there(driver, cluster: OwnCluster) -> None:
    for line in driver.lines[5:]:
        assert {os.getsid(pid) for pid in line["pids"].values()} == {driver.pid}
    strangers = [pid for pid in session_of(cluster.sessions[0]) if b"RankActor" in command_line(pid)]
    assert strangers == []


def test_a_stopped_job_is_ours_to_end(driver) -> None:
    assert driver.lines[3]["sigterm_is_ours"] is True


def test_nothing_outlives_a_killed_driver(driver) -> None:
    before = session_of(driver.pid)
    assert set(driver.lines[5]["pids"].values()) < set(before)
    assert len(before) > 5  # the cluster's daemons and agents too
    os.kill(driver.pid, signal.SIGKILL)
    driver.wait(30)
    left = still_alive(before, 30)
    assert [Path(f"/proc/{pid}/cmdline").read_text() for pid in left] == []
