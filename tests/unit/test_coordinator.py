"""The coordinator over ranks in this process: results, losses, deadlines, Ctrl-C."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from stress.coordinator import ArmProgress, Interrupted, Patience, run_arms
from stress.launch.contract import LaunchError, RankOutcome, make_launcher
from stress.launch.inline import InlineLauncher
from stress.record import RunDirectory, RunDirectoryError

ENTRY = "launch_ranks:echo_rank"


@pytest.fixture(autouse=True)
def ranks_on_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "multi"))


@pytest.fixture
def run_dir(tmp_path: Path) -> RunDirectory:
    return RunDirectory.create(tmp_path / "run", "test")


def run(config, run_dir: RunDirectory, arms: list[str] | None = None, launcher=None, **patience: float):
    seen: list[ArmProgress] = []
    results = run_arms(
        config,
        arms or ["patched"],
        launcher or InlineLauncher(),
        run_dir,
        seen.append,
        entry=ENTRY,
        patience=Patience(**patience),
    )
    return results, seen


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
    assert (seen[-1].ranks_lost, seen[-1].findings) == (1, 27)


def test_an_entry_that_does_not_exist_loses_every_rank(run_dir: RunDirectory) -> None:
    from launch_ranks import launch_config

    config = launch_config(2, rounds=1)
    results = run_arms(config, ["a"], InlineLauncher(), run_dir, lambda _: None, entry="no.such:thing")
    assert [result.status for result in results["a"]] == ["lost", "lost"]
    assert "no.such" in results["a"][0].message


def test_parallel_arms_are_refused(run_dir: RunDirectory) -> None:
    from launch_ranks import LaunchConfig, Layout

    config = LaunchConfig(layout=Layout(tp_size=1, dp_size=1), test={}, arms={"mode": "parallel"})
    with pytest.raises(ValueError, match=r"arms\.mode"):
        run(config, run_dir)


class ScriptedLauncher:
    """Reports what it is given, call by call, and counts how it was ended."""

    name = "scripted"

    def __init__(self, *script: list[RankOutcome] | type[BaseException]) -> None:
        self.script = list(script)
        self.stops = 0
        self.closes = 0

    def start(self, specs, entry) -> None:
        pass

    def poll(self, timeout_s: float) -> list[RankOutcome]:
        step = self.script.pop(0) if self.script else []
        if isinstance(step, list):
            return step
        raise step

    def stop(self) -> None:
        self.stops += 1

    def close(self) -> None:
        self.closes += 1

    def pids(self) -> dict[int, int]:
        return {}


def test_survivors_are_awaited_to_a_deadline_after_a_loss(run_dir: RunDirectory) -> None:
    from launch_ranks import launch_config

    launcher = ScriptedLauncher([RankOutcome(rank=1, lost="killed by SIGKILL")])
    results, _ = run(launch_config(2, rounds=1), run_dir, launcher=launcher, loss_s=0.05, stall_s=60)
    silent, killed = results["patched"]
    assert killed.message == "killed by SIGKILL"
    assert (silent.status, "after a peer was lost" in silent.message) == ("lost", True)
    assert launcher.stops == 1
    assert launcher.closes


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
    assert launcher.closes == 2


def test_time_in_which_the_coordinator_stood_still_is_not_held_against_the_ranks(
    run_dir: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    from launch_ranks import launch_config

    clock = [0.0]
    monkeypatch.setattr("stress.coordinator.time.monotonic", lambda: clock[0])

    class Suspended(ScriptedLauncher):
        def poll(self, timeout_s: float) -> list[RankOutcome]:
            clock[0] += 3600 if len(self.script) == 3 else timeout_s
            return super().poll(timeout_s)

    launcher = Suspended([], [], [RankOutcome(rank=0, lost="exited with 3")])
    results, _ = run(launch_config(1, rounds=1), run_dir, launcher=launcher, stall_s=60)
    assert results["patched"][0].message == "exited with 3"


def test_an_arm_whose_files_cannot_be_named_starts_no_rank(run_dir: RunDirectory) -> None:
    from launch_ranks import launch_config

    launcher = FullMachine()
    with pytest.raises(RunDirectoryError, match="shorter name"):
        run(launch_config(1, rounds=1), run_dir, ["x" * 300], launcher)


class FullMachine(ScriptedLauncher):
    def start(self, specs, entry) -> None:
        raise LaunchError("no room for 2 ranks; lower layout.tp_size")


@pytest.mark.parametrize(
    ("launcher", "error"), [(FullMachine(), LaunchError), (ScriptedLauncher(KeyError), KeyError)]
)
def test_a_launcher_that_fails_is_closed_all_the_same(launcher, error, run_dir: RunDirectory) -> None:
    from launch_ranks import launch_config

    with pytest.raises(error):
        run(launch_config(2, rounds=1), run_dir, launcher=launcher)
    assert launcher.closes


def test_launchers_are_made_by_name() -> None:
    from launch_ranks import launch_config

    config = launch_config(1)
    assert make_launcher("inline", config).name == "inline"
    assert make_launcher("local", config).name == "local"
    with pytest.raises(ValueError, match="ray, local, inline"):
        make_launcher("slurm", config)


def test_the_coordinator_imports_neither_torch_nor_ray() -> None:
    code = (
        "import sys, stress.coordinator, stress.manifest, stress.launch.local, stress.launch.inline\n"
        "print([name for name in ('torch', 'ray') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
