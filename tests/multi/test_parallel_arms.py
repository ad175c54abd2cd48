"""Arms at the same time in processes of their own: each its own group, a loss in one never reaches the other."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from launch_ranks import launch_config, parallel_config
from processes import still_alive

from stress.config_schema import Deadlines
from stress.coordinator import run_arms
from stress.launch.contract import make_launcher
from stress.record import RunDirectory

pytestmark = pytest.mark.multi

HERE = Path(__file__).parent
ENTRY = "launch_ranks:echo_rank"
ARMS = {"first": "0,2", "second": "3-5"}  # rank 1 belongs to nobody


@pytest.fixture(autouse=True)
def ranks_on_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(HERE))


def run(tmp_path: Path, config, arms: list[str], launcher: str = "local", entry: str = ENTRY):
    run_dir = RunDirectory.create(tmp_path / f"{launcher}{len(os.listdir(tmp_path))}", "test")
    made = make_launcher(launcher, config)
    results = run_arms(config, arms, made, run_dir, lambda _: None, entry=entry)
    others = {result.pid for ranks in results.values() for result in ranks} - {0, os.getpid()}
    assert still_alive(list(others), 0) == []
    return results


def shown(ranks) -> list[tuple[str, str, bool]]:
    return [(result.status, result.digest, result.digest_partial) for result in ranks]


def test_two_groups_hear_what_each_hears_alone(tmp_path: Path) -> None:
    beside = run(tmp_path, parallel_config(6, ARMS, rounds=9, bytes=3000), list(ARMS))
    assert [result.rank for result in beside["first"]] == [0, 2]
    for arm, ranks in (("first", 2), ("second", 3)):
        alone = run(tmp_path, launch_config(ranks, rounds=9, bytes=3000), ["alone"], "inline")
        assert shown(beside[arm]) == shown(alone["alone"])


@pytest.mark.parametrize(("fault", "victim"), [("kill", 3), ("kill", 4), ("stillborn", 3), ("stillborn", 5)])
def test_a_dead_rank_of_one_arm_leaves_the_other_whole(fault: str, victim: int, tmp_path: Path) -> None:
    """Also the one that holds its arm's store, and one that dies before its group is formed."""
    config = parallel_config(6, ARMS, rounds=9, **{fault: victim})
    beside = run(tmp_path, config, list(ARMS), entry="launch_ranks:absent_rank")
    alone = run(tmp_path, launch_config(2, rounds=9), ["alone"], "inline")
    assert shown(beside["first"]) == shown(alone["alone"])
    lost = {result.rank: result.status for result in beside["second"] if result.status != "finished"}
    assert lost == {victim: "lost"}
    assert all(result.digest_partial for result in beside["second"])


def test_a_frozen_rank_of_one_arm_is_given_up_and_the_other_ends(tmp_path: Path) -> None:
    config = parallel_config(6, ARMS, rounds=9, freeze=4)
    deadlines = Deadlines(exchange_s=2, loss_s=3)
    beside = run(tmp_path, msgspec.structs.replace(config, deadlines=deadlines), list(ARMS))
    assert [result.status for result in beside["second"]] == ["finished", "lost", "finished"]
    assert "no sign of life for 3 s" in beside["second"][1].message
    assert [(result.status, result.digest_partial) for result in beside["first"]] == [("finished", False)] * 2


def test_the_command_line_runs_arms_in_parallel_with_the_digests_of_a_sequence(tmp_path: Path) -> None:
    settings = ("workload.requests=120", "check.require=[]")
    parallel = ("layout.tp_size=4", "layout.dp_size=4", "arms.mode=parallel")
    ranks = ("arms.unpatched.ranks=2-3", "arms.patched.ranks=0-1")
    beside = compare(tmp_path / "beside", "local", *settings, *parallel, *ranks)
    after = compare(tmp_path / "after", "inline", *settings)
    assert beside["compare"]["outcome"] == "reproduced_and_fixed"
    assert beside["digest"] == after["digest"]
    assert len({rank["pid"] for arm in beside["arms"].values() for rank in arm["ranks"]}) == 4


def compare(out: Path, launcher: str, *settings: str) -> dict:
    overrides = [word for setting in settings for word in ("--set", setting)]
    command = [sys.executable, "-m", "stress", "compare", "smoke", "--base", "unpatched", "--test", "patched"]
    options = ["--launcher", launcher, "--out", str(out), "--json"]
    done = subprocess.run(
        [*command, *overrides, *options], cwd=HERE.parents[1], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
