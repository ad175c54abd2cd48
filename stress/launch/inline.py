"""All ranks in this process, interleaved exchange by exchange: for unit tests, replay and shrinking.

One turn sends every rank the payloads of its arm's last exchange, in rank order, so the same bytes are exchanged
as over a process group. Arms that run at once take turns. Losses look the same too: once a rank has ended before
the others, each of these hears only itself and its digest is marked partial. A rank that never yields blocks
`poll`: it shares a thread with its coordinator.
"""

from __future__ import annotations

import os
import time

import msgspec

from stress.ending import ENDING
from stress.launch.contract import LaunchError, RankOutcome, backend_of, by_arm
from stress.launch.device import torch_device, use_device
from stress.launch.entry import RankRun
from stress.result import RankSpec


class _Arm:
    """The ranks of one arm, by index."""

    def __init__(self, specs: list[RankSpec], entry: str) -> None:
        self.runs = [
            RankRun(msgspec.structs.replace(spec, device=torch_device(spec.device, spec.rank)), entry)
            for spec in specs
        ]
        self._payloads: list[bytes] | None = None  # of the last exchange; None before the first
        self._partial = False

    @property
    def ended(self) -> bool:
        return all(run.outcome is not None for run in self.runs)

    def turn(self) -> None:
        """One exchange: every rank that has not ended runs up to its next one."""
        # A rank that was gone before this turn is missing from its exchange. One that ends in this turn
        # has ended at the same exchange as its peers, unless some of these go on.
        self._partial = self._partial or any(run.outcome is not None for run in self.runs)
        for index, run in enumerate(self.runs):
            heard = self._payloads
            if heard is not None and self._partial:
                heard = [payload if peer == index else b"" for peer, payload in enumerate(heard)]
            use_device(run.spec.device)
            run.advance(heard, partial=self._partial)
        self._payloads = [b"" if run.outcome is not None else run.payload for run in self.runs]


class InlineLauncher:
    """Interleaves the ranks' generators. Opens no process and no port."""

    name = "inline"

    def __init__(self) -> None:
        self._arms: list[_Arm] = []
        self._reported: set[int] = set()

    def start(self, specs: list[RankSpec], entry: str) -> None:
        self.stop()
        if any(backend_of(spec) == "nccl" for spec in specs):
            raise LaunchError(
                "layout.backend is nccl, but inline ranks are in one process and exchange over nothing; "
                "use --launcher local, or --set layout.backend=auto"
            )
        self._arms = [_Arm(of_arm, entry) for of_arm in by_arm(specs).values()]
        for run in self._runs():
            run.open()

    def poll(self, timeout_s: float) -> list[RankOutcome]:
        deadline_s = time.monotonic() + timeout_s
        while True:
            ended = [
                run.outcome for run in self._runs() if run.outcome and run.spec.rank not in self._reported
            ]
            if ended:
                self._reported.update(outcome.rank for outcome in ended)
                return sorted(ended, key=lambda outcome: outcome.rank)
            going = [arm for arm in self._arms if not arm.ended]
            if not going or time.monotonic() > deadline_s:
                return []
            for arm in going:
                with ENDING.hears():
                    arm.turn()

    def stop(self) -> None:
        for run in self._runs():
            run.close()
        self._arms = []
        self._reported.clear()

    def close(self) -> None:
        self.stop()

    def pids(self) -> dict[int, int]:
        return {run.spec.rank: os.getpid() for run in self._runs()}

    def _runs(self) -> list[RankRun]:
        return [run for arm in self._arms for run in arm.runs]
