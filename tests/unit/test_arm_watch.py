"""When ranks are waited for no longer, and who is named meanwhile."""

from __future__ import annotations

import msgspec
import pytest
from scripted_launcher import ScriptedLauncher, Silent, run, ticking

from stress.config_schema import Deadlines
from stress.coordinator import run_arms
from stress.launch.contract import RankOutcome
from stress.record import RankFile, RunDirectory


def test_survivors_are_awaited_to_a_deadline_after_a_loss(run_dir: RunDirectory) -> None:
    from launch_ranks import launch_config

    launcher = ScriptedLauncher([RankOutcome(rank=1, lost="killed by SIGKILL")])
    results, seen = run(launch_config(2, rounds=1), run_dir, launcher=launcher, loss_s=0.05, stall_s=60)
    assert (seen[0].lost, seen[-1].lost) == ((1,), (0, 1))
    silent, killed = results["patched"]
    assert killed.message == "killed by SIGKILL"
    assert (silent.status, "after a peer was lost" in silent.message) == ("lost", True)
    assert launcher.stops == 1
    assert launcher.closes


def test_time_in_which_the_coordinator_stood_still_is_not_held_against_the_ranks(
    run_dir: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    from launch_ranks import launch_config

    clock = ticking(monkeypatch)

    class Suspended(ScriptedLauncher):
        def poll(self, timeout_s: float) -> list[RankOutcome]:
            clock[0] += 3600 if len(self.script) == 3 else timeout_s
            return super().poll(timeout_s)

    launcher = Suspended([], [], [RankOutcome(rank=0, lost="exited with 3")])
    results, _ = run(launch_config(1, rounds=1), run_dir, launcher=launcher, stall_s=60)
    assert results["patched"][0].message == "exited with 3"


def test_patience_is_the_configurations(run_dir: RunDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    from launch_ranks import launch_config

    clock = ticking(monkeypatch)
    config = msgspec.structs.replace(launch_config(1, rounds=1), deadlines=Deadlines(stall_s=7))
    results = run_arms(config, ["a"], Silent(clock), run_dir, lambda _: None)
    assert results["a"][0].message == "no sign of life for 7 s; stopped by the coordinator"


def test_a_rank_that_stands_still_is_named_while_its_peers_wait_for_it(
    run_dir: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All four beat at 1 s; at 5 s all but rank 2, which they wait for from then on."""
    from launch_ranks import _heartbeat, launch_config

    clock = ticking(monkeypatch)
    files = [RankFile(run_dir.rank_path("patched", rank)) for rank in range(4)]

    class Beating(Silent):
        def beat(self) -> None:
            for rank, file in enumerate(files):
                if clock[0] == 1 or (clock[0] == 5 and rank != 2):
                    file.write(_heartbeat(0))

    _, seen = run(launch_config(4, rounds=1), run_dir, launcher=Beating(clock), stall_s=60)
    told = [(state.silent_rank, state.silent_s) for state in seen]
    assert told[:31] == [(None, 0.0)] * 31  # at 31 s rank 2 has been silent for 30 s, and not longer
    assert (told[31], told[44]) == ((2, 31.0), (2, 44.0))


def test_ranks_that_all_stand_still_are_not_told_apart(
    run_dir: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    from launch_ranks import launch_config

    _, seen = run(launch_config(3, rounds=1), run_dir, launcher=Silent(ticking(monkeypatch)), stall_s=60)
    assert {state.silent_rank for state in seen} == {None}
    assert seen[-1].lost == (0, 1, 2)
