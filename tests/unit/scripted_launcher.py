"""Launchers that report what a test gives them, and the coordinator over one of these."""

from __future__ import annotations

import pytest

from stress.arm_watch import ArmProgress, Patience
from stress.coordinator import run_arms
from stress.launch.contract import RankOutcome
from stress.launch.inline import InlineLauncher
from stress.record import RunDirectory

ENTRY = "launch_ranks:echo_rank"


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


class Silent(ScriptedLauncher):
    """Its ranks say nothing, unless `beating` writes for one."""

    def __init__(self, clock: list[float], *script: list[RankOutcome]) -> None:
        super().__init__(*script)
        self.clock = clock

    def poll(self, timeout_s: float) -> list[RankOutcome]:
        self.clock[0] += timeout_s
        self.beat()
        return super().poll(timeout_s)

    def beat(self) -> None:
        """Nothing, unless a test lets its ranks write."""


def ticking(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Wall time in seconds, moved on by the launchers of these tests."""
    clock = [0.0]
    monkeypatch.setattr("stress.coordinator.time.monotonic", lambda: clock[0])
    return clock
