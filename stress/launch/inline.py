"""All ranks in this process, interleaved exchange by exchange: for unit tests, replay and shrinking.

One turn sends every rank the payloads of the last exchange, in rank order, so the same bytes are exchanged
as over a process group. Losses look the same too: once a rank has ended before the others, each of these
hears only itself and its digest is marked partial. A rank that never yields blocks `poll`: it shares a thread
with its coordinator.
"""

from __future__ import annotations

import os
import time

import msgspec

from stress.launch.contract import LaunchError, RankOutcome, backend_of
from stress.launch.device import torch_device
from stress.launch.entry import RankRun
from stress.result import RankSpec


class InlineLauncher:
    """Interleaves the ranks' generators. Opens no process and no port."""

    name = "inline"

    def __init__(self) -> None:
        self._runs: list[RankRun] = []
        self._payloads: list[bytes] | None = None  # of the last exchange; None before the first
        self._reported: set[int] = set()
        self._partial = False

    def start(self, specs: list[RankSpec], entry: str) -> None:
        self.stop()
        if any(backend_of(spec) == "nccl" for spec in specs):
            raise LaunchError(
                "layout.backend is nccl, but inline ranks are in one process and exchange over nothing; "
                "use --launcher local, or --set layout.backend=auto"
            )
        devices = [torch_device(spec.device, spec.rank) for spec in specs]
        self._runs = [
            RankRun(msgspec.structs.replace(spec, device=device), entry)
            for spec, device in zip(specs, devices, strict=True)
        ]
        for run in self._runs:
            run.open()

    def poll(self, timeout_s: float) -> list[RankOutcome]:
        deadline_s = time.monotonic() + timeout_s
        while True:
            ended = [run.outcome for run in self._runs if run.outcome and run.spec.rank not in self._reported]
            if ended:
                self._reported.update(outcome.rank for outcome in ended)
                return ended
            if len(self._reported) == len(self._runs) or time.monotonic() > deadline_s:
                return []
            self._turn()

    def stop(self) -> None:
        for run in self._runs:
            run.close()
        self._runs, self._payloads, self._partial = [], None, False
        self._reported.clear()

    def close(self) -> None:
        self.stop()

    def pids(self) -> dict[int, int]:
        return {run.spec.rank: os.getpid() for run in self._runs}

    def _turn(self) -> None:
        """One exchange: every rank that has not ended runs up to its next one."""
        # A rank that was gone before this turn is missing from its exchange. One that ends in this turn
        # has ended at the same exchange as its peers, unless some of these go on.
        self._partial = self._partial or any(run.outcome is not None for run in self._runs)
        for rank, run in enumerate(self._runs):
            heard = self._payloads
            if heard is not None and self._partial:
                heard = [payload if peer == rank else b"" for peer, payload in enumerate(heard)]
            run.advance(heard, partial=self._partial)
        self._payloads = [b"" if run.outcome is not None else run.payload for run in self._runs]
