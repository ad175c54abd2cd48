"""Runs the arms of a run one after another and gathers what their ranks found out.

The coordinator starts an arm's ranks by a launcher, waits for each to end, and meanwhile follows their files
for signs of life. A rank that is lost gets a result made from its file, so that what it found before its
death counts. After a loss the survivors are still collected, to a deadline without any progress. It decides
no verdict, reads no target, and knows no launcher's library.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import msgspec

from stress.launch.contract import Launcher, RankOutcome
from stress.lost_rank import result_from_file
from stress.record import RankTail, RunDirectory
from stress.result import RankResult, RankSpec, Status

ENTRY = "stress.rank:run_rank"


class Patience(msgspec.Struct, frozen=True, kw_only=True):
    """How long the coordinator waits, in seconds of wall time."""

    progress_s: float = 1.0  # between two reports of progress
    loss_s: float = 120.0  # after a loss: without any rank's heartbeat
    stall_s: float = 900.0  # without a loss: the same; long enough for a slow start on a busy machine


class ArmProgress(msgspec.Struct, frozen=True, kw_only=True):
    """How far an arm is. Sums are over its ranks, as of their last heartbeats or results."""

    arm: str
    ranks: int
    ranks_ended: int
    ranks_lost: int
    requests_done: int  # finished or cancelled
    virtual_s_min: float
    virtual_s_max: float
    findings: int
    asserts: int


class Interrupted(Exception):
    """Ctrl-C. `results` holds the arms that were run or begun; ranks that had not ended are `stopped`."""

    def __init__(self, results: dict[str, list[RankResult]]) -> None:
        super().__init__("interrupted")
        self.results = results


def run_arms(
    config: Any,
    arms: list[str],
    launcher: Launcher,
    run_dir: RunDirectory,
    progress: Callable[[ArmProgress], None],
    *,
    entry: str = ENTRY,
    patience: Patience | None = None,
    trees: dict[str, str] | None = None,
    on_interrupt: Callable[[dict[str, list[RankResult]]], None] = lambda _results: None,
) -> dict[str, list[RankResult]]:
    """Runs `arms` in their order, each with fresh ranks; returns their results in rank order.

    `trees`: the folder of each arm that has a real engine. `on_interrupt` gets the results before the ranks
    are ended, which takes seconds on a cluster: a job that is being stopped may not have them.

    Raises ValueError for arms.mode = "parallel", LaunchError when the ranks cannot be started,
    RunDirectoryError when their files cannot be read, Interrupted on Ctrl-C. In every case no rank is left
    alive.
    """
    if config.to_dict().get("arms", {}).get("mode", "sequence") != "sequence":
        raise ValueError('arms.mode: "parallel" does not exist yet; set it to "sequence"')
    results: dict[str, list[RankResult]] = {}
    watch: _ArmWatch | None = None
    try:
        for arm in arms:
            watch = _ArmWatch(_rank_specs(config, arm, run_dir, (trees or {}).get(arm)), config, run_dir)
            launcher.start(watch.specs, entry)
            watch.follow(launcher, progress, patience or Patience())
            results[arm] = watch.results("lost")
            launcher.stop()
        launcher.close()
    except KeyboardInterrupt:
        if watch is not None and watch.arm not in results:
            results[watch.arm] = watch.results("stopped")
        on_interrupt(results)
        raise Interrupted(results) from None
    finally:
        launcher.close()
    return results


def _rank_specs(config: Any, arm: str, run_dir: RunDirectory, tree: str | None) -> list[RankSpec]:
    ranks = config.layout.tp_size
    return [
        RankSpec(
            config=config.to_dict(),
            arm=arm,
            rank=rank,
            ranks=ranks,
            seed=config.seed,
            run_dir=str(run_dir.path),
            device=config.layout.device,
            tree=tree,
        )
        for rank in range(ranks)
    ]


class _ArmWatch:
    """One arm under way: how its ranks ended so far, and what their files say of the others."""

    def __init__(self, specs: list[RankSpec], config: Any, run_dir: RunDirectory) -> None:
        self.specs = specs
        self.arm = specs[0].arm
        self._attn_tp_size = config.layout.tp_size // config.layout.dp_size
        self._outcomes: dict[int, RankOutcome] = {}
        # A file that could never be read is told of here, before any rank is started.
        self._tails = [RankTail(run_dir.rank_path(spec.arm, spec.rank)).read() for spec in specs]
        self._gave_up = ""

    def follow(self, launcher: Launcher, progress: Callable[[ArmProgress], None], patience: Patience) -> None:
        """Returns when all ranks have ended, or when it waited in vain for those that have not."""
        signs = (0, 0)
        silent_s, looked_s = 0.0, time.monotonic()
        while len(self._outcomes) < len(self.specs):
            self._outcomes |= {outcome.rank: outcome for outcome in launcher.poll(patience.progress_s)}
            now_signs = (len(self._outcomes), sum(tail.read().heartbeats for tail in self._tails))
            # A round that took long is one in which this process stood still, and perhaps the ranks with it.
            round_s = min(time.monotonic() - looked_s, 2 * patience.progress_s)
            silent_s = silent_s + round_s if now_signs == signs else 0.0
            signs, looked_s = now_signs, time.monotonic()
            progress(self._progress())
            after = self._loss()
            limit_s = min(patience.loss_s, patience.stall_s) if after else patience.stall_s
            if silent_s > limit_s and len(self._outcomes) < len(self.specs):
                self._gave_up = f"no sign of life for {limit_s:g} s{after}; stopped by the coordinator"
                return

    def _loss(self) -> str:
        """What tells of a lost rank so far; "" for nothing. One that is stopped never says so itself."""
        if any(outcome.result is None for outcome in self._outcomes.values()):
            return " after a peer was lost"
        if any(outcome.result.digest_partial for outcome in self._outcomes.values()):
            return " after its peers had gone on without it"
        return ""

    def results(self, status: Status) -> list[RankResult]:
        """All ranks' results in rank order; one that has not ended gets `status`, from its file."""
        results = []
        for spec, tail in zip(self.specs, self._tails, strict=True):
            outcome = self._outcomes.get(spec.rank)
            if outcome is not None and outcome.result is not None:
                results.append(outcome.result)
                continue
            given: Status = "lost" if outcome is not None else status
            why = outcome.lost if outcome is not None else self._gave_up or "stopped by the user"
            results.append(result_from_file(spec, tail.read(), self._attn_tp_size, given, why))
        return results

    def _progress(self) -> ArmProgress:
        states, findings = [], 0
        for spec, tail in zip(self.specs, self._tails, strict=True):
            outcome = self._outcomes.get(spec.rank)
            state = outcome.result if outcome is not None else None
            if state is None:
                state = result_from_file(spec, tail, self._attn_tp_size, "stopped", "")
            findings += max(sum(state.findings.values()), tail.heartbeat.findings if tail.heartbeat else 0)
            states.append(state)
        virtual_s = [state.virtual_us / 1_000_000 for state in states]
        return ArmProgress(
            arm=self.arm,
            ranks=len(states),
            ranks_ended=len(self._outcomes),
            ranks_lost=sum(bool(outcome.lost) for outcome in self._outcomes.values()),
            requests_done=sum(state.requests_finished + state.requests_cancelled for state in states),
            virtual_s_min=min(virtual_s),
            virtual_s_max=max(virtual_s),
            findings=findings,
            asserts=sum(state.asserts for state in states),
        )
