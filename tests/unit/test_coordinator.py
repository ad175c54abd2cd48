"""The coordinator over ranks in this process: results, losses, failures to start, Ctrl-C."""

from __future__ import annotations

import subprocess
import sys

import pytest
from scripted_launcher import ScriptedLauncher, run

from stress.coordinator import ArmsBroken, Interrupted, run_arms
from stress.launch.contract import LaunchError, RankOutcome, make_launcher
from stress.launch.inline import InlineLauncher
from stress.record import RunDirectory, RunDirectoryError


def test_all_ranks_of_all_arms_report_in_order(run_dir: RunDirectory) -> None:
    from launch_ranks import launch_config

    results, seen = run(launch_config(3, rounds=6), run_dir, ["unpatched", "patched", "patched~2"])
    assert list(results) == ["unpatched", "patched", "patched~2"]
    for arm, ranks in results.items():
        assert [(result.arm, result.rank, result.status) for result in ranks] == [
            (arm, rank, "finished") for rank in range(3)
        ]
        assert len({result.digest for result in ranks}) == 1
        assert not any(result.digest_partial for result in ranks)
    assert (seen[-1].ranks_ended, seen[-1].requests_done, seen[-1].virtual_s_max) == (3, 18, 0.006)
    tail = run_dir.read_rank("patched", 2)
    assert tail.started is not None
    assert tail.started.pid > 0  # the launcher's line, not the rank's second one
    assert tail.result == results["patched"][2]
    assert tail.path.read_bytes().count(b'"event":"started"') == 1
    assert tail.path.read_bytes().count(b'"event":"result"') == 1


def test_a_rank_that_raises_is_lost_and_the_others_are_partial(run_dir: RunDirectory) -> None:
    from launch_ranks import launch_config

    results, seen = run(launch_config(3, rounds=6, **{"raise": 1}), run_dir)
    first, lost, last = results["patched"]
    assert (lost.status, lost.findings, lost.kept[0].rule) == ("lost", {"I1": 1}, "I1")
    assert (lost.requests_finished, lost.virtual_us, lost.requests_started) == (2, 2000, 3)
    assert "the test rank's own trouble" in lost.message
    assert "9 findings in all" in lost.message
    for survivor in (first, last):
        assert (survivor.status, survivor.digest_partial) == ("finished", True)
    assert first.digest != last.digest  # from the loss on, each heard only itself
    assert (seen[-1].lost, seen[-1].findings) == ((1,), 27)


def test_an_entry_that_does_not_exist_loses_every_rank(run_dir: RunDirectory) -> None:
    from launch_ranks import launch_config

    config = launch_config(2, rounds=1)
    results = run_arms(config, ["a"], InlineLauncher(), run_dir, lambda _: None, entry="no.such:thing")
    assert [result.status for result in results["a"]] == ["lost", "lost"]
    assert "no.such" in results["a"][0].message


def test_ctrl_c_stops_the_ranks_and_keeps_what_they_found(run_dir: RunDirectory) -> None:
    from launch_ranks import launch_config

    launcher = ScriptedLauncher([RankOutcome(rank=1, lost="exited with 3")], KeyboardInterrupt)
    with pytest.raises(Interrupted) as interrupted:
        run(launch_config(2, rounds=1), run_dir, ["first", "second"], launcher)
    assert list(interrupted.value.results) == ["first"]
    assert [result.status for result in interrupted.value.results["first"]] == ["stopped", "lost"]
    assert launcher.closes


class LateInterrupt(ScriptedLauncher):
    """Ctrl-C while the last ranks are being ended."""

    def close(self) -> None:
        super().close()
        if self.closes == 1:
            raise KeyboardInterrupt


def test_what_was_gathered_is_handed_out_before_the_ranks_are_ended(run_dir: RunDirectory) -> None:
    from launch_ranks import launch_config

    launcher = ScriptedLauncher(KeyboardInterrupt)
    told = []
    with pytest.raises(Interrupted):
        run_arms(
            launch_config(1, rounds=1),
            ["a"],
            launcher,
            run_dir,
            lambda _: None,
            on_interrupt=lambda results: told.append((results["a"][0].status, launcher.closes)),
        )
    assert told == [("stopped", 0)]


def test_ctrl_c_after_the_last_rank_keeps_every_result(run_dir: RunDirectory) -> None:
    from launch_ranks import launch_config

    launcher = LateInterrupt([RankOutcome(rank=0, lost="exited with 3")])
    with pytest.raises(Interrupted) as interrupted:
        run(launch_config(1, rounds=1), run_dir, ["a"], launcher)
    assert [result.message for result in interrupted.value.results["a"]] == ["exited with 3"]
    assert launcher.closes == 3  # behind the ranks, ahead of the last look at their files, and at the end


def test_an_arm_whose_files_cannot_be_named_starts_no_rank(run_dir: RunDirectory) -> None:
    from launch_ranks import launch_config

    launcher = FullMachine()
    with pytest.raises(ArmsBroken, match="shorter name") as broken:
        run(launch_config(1, rounds=1), run_dir, ["x" * 300], launcher)
    assert isinstance(broken.value.__cause__, RunDirectoryError)
    assert (broken.value.results, broken.value.unstarted) == ({}, [])


class FullMachine(ScriptedLauncher):
    def start(self, specs, entry) -> None:
        raise LaunchError("no room for 2 ranks; lower layout.tp_size")


@pytest.mark.parametrize(
    ("launcher", "error"), [(FullMachine(), LaunchError), (ScriptedLauncher(KeyError), KeyError)]
)
def test_a_launcher_that_fails_is_closed_all_the_same(launcher, error, run_dir: RunDirectory) -> None:
    from launch_ranks import launch_config

    with pytest.raises(ArmsBroken) as broken:
        run(launch_config(2, rounds=1), run_dir, launcher=launcher)
    assert isinstance(broken.value.__cause__, error)
    assert launcher.closes


class FullLater(InlineLauncher):
    """Has room for the first arm alone, or takes the second one's ranks and fails then."""

    def __init__(self, error: Exception, *, at_start: bool) -> None:
        super().__init__()
        self.error, self.at_start = error, at_start

    def start(self, specs, entry) -> None:
        if specs[0].arm == "second" and self.at_start:
            raise self.error
        super().start(specs, entry)
        self.second = specs[0].arm == "second"

    def poll(self, timeout_s: float) -> list[RankOutcome]:
        if self.second:
            raise self.error
        return super().poll(timeout_s)


@pytest.mark.parametrize(
    ("error", "at_start", "unstarted", "second"),
    [
        (LaunchError("no room"), True, ["second"], None),
        (LaunchError("no device"), False, ["second"], None),
        (KeyError("ours"), False, [], ["stopped", "stopped"]),
    ],
)
def test_a_later_arm_that_fails_costs_no_earlier_arm(
    error, at_start, unstarted, second, run_dir: RunDirectory
) -> None:
    from launch_ranks import launch_config

    with pytest.raises(ArmsBroken) as broken:
        run(
            launch_config(2, rounds=6, **{"raise": 0}),
            run_dir,
            ["first", "second"],
            FullLater(error, at_start=at_start),
        )
    results = broken.value.results
    assert broken.value.__cause__ is error
    assert broken.value.unstarted == unstarted
    assert [result.status for result in results["first"]] == ["lost", "finished"]
    found = [result.status for result in results["second"]] if "second" in results else None
    assert found == second


def test_launchers_are_made_by_name() -> None:
    from launch_ranks import launch_config

    config = launch_config(1)
    assert make_launcher("inline", config).name == "inline"
    assert make_launcher("local", config).name == "local"
    assert make_launcher("ray", config).name == "ray"
    with pytest.raises(ValueError, match="ray, local, inline"):
        make_launcher("slurm", config)


def test_the_coordinator_imports_neither_torch_nor_ray() -> None:
    code = (
        "import sys, stress.coordinator, stress.manifest, stress.launch.local, stress.launch.inline\n"
        "print([name for name in ('torch', 'ray') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
