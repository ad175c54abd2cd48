"""Runs the arms of a run, one after another or all at once, and gathers what their ranks found out.

The coordinator starts an arm's ranks by a launcher, waits for each to end, and meanwhile follows their files
for signs of life. After a loss the survivors are still collected, to a deadline without any progress. Arms in
parallel are waited for each by itself: one that is given up leaves the others be. What was gathered is handed
out in every case, also when a later arm can't be started. It decides no verdict, reads no target, and knows no
launcher's library.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import Any

from stress.arm_layout import arm_ranks, is_parallel
from stress.arm_watch import ArmProgress, ArmWatch, Patience
from stress.launch.contract import Launcher, LaunchError
from stress.record import RunDirectory, RunDirectoryError
from stress.result import RankResult, RankSpec

ENTRY = "stress.rank:run_rank"

Results = dict[str, list[RankResult]]


class Interrupted(Exception):
    """Ctrl-C. `results` holds the arms that were run or begun; ranks that had not ended are `stopped`."""

    def __init__(self, results: Results) -> None:
        super().__init__("interrupted")
        self.results = results


class ArmsBroken(Exception):
    """An error ended the run; it is the __cause__.

    `results` holds the arms that were run or begun, as in Interrupted. `unstarted` names the arms whose ranks
    could not be started: then the cause is a LaunchError. It is empty for any other error.
    """

    def __init__(self, results: Results, unstarted: list[str], error: Exception) -> None:
        super().__init__(str(error))
        self.results, self.unstarted = results, unstarted


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
    on_interrupt: Callable[[Results], None] = lambda _results: None,
) -> Results:
    """Runs `arms` in their order, or at the same time (arms.mode), each with fresh ranks.

    Returns their results in rank order.

    `patience`: None is that of config.deadlines. `trees`: the folder of each arm that has a real engine.
    `on_interrupt` gets the results before the ranks are ended, which takes seconds on a cluster: a job that is
    being stopped may not have them.

    Raises ArmsBroken when the ranks cannot be started (LaunchError) or followed, Interrupted on Ctrl-C. In
    every case no rank is left alive.
    """
    patience = patience or Patience(loss_s=config.deadlines.loss_s, stall_s=config.deadlines.stall_s)
    results: Results = {}
    under_way: list[ArmWatch] = []
    try:
        for together in [arms] if is_parallel(config) else [[arm] for arm in arms]:
            specs = [_rank_specs(config, arm, run_dir, (trees or {}).get(arm)) for arm in together]
            under_way = [ArmWatch(of_arm, config.layout.attn_tp_size, run_dir) for of_arm in specs]
            launcher.start([spec for of_arm in specs for spec in of_arm], entry)
            _follow(under_way, launcher, progress, patience)
            results |= _over(under_way)
            launcher.stop()
            results |= _read_on(under_way)
        launcher.close()
    except KeyboardInterrupt:
        on_interrupt(results | _cut_short(under_way, results, "stopped by the user"))
        launcher.close()  # a rank may still check, and write, what it has seen
        results |= _read_on([watch for watch in under_way if watch.arm in results])
        results |= _cut_short(under_way, results, "stopped by the user")
        raise Interrupted(results) from None
    except LaunchError as error:
        launcher.close()
        cut = _cut_short(under_way, results, "stopped, for another arm could not be started")
        results |= {watch.arm: cut[watch.arm] for watch in under_way if watch.arm in cut and watch.begun}
        unstarted = [watch.arm for watch in under_way if watch.arm not in results]
        raise ArmsBroken(results, unstarted, error) from error
    except Exception as error:
        launcher.close()
        results |= _cut_short(under_way, results, f"stopped by {type(error).__name__}")
        raise ArmsBroken(results, [], error) from error
    finally:
        launcher.close()
    return results


def _rank_specs(config: Any, arm: str, run_dir: RunDirectory, tree: str | None) -> list[RankSpec]:
    ranks = arm_ranks(config, arm)
    return [
        RankSpec(
            config=config.to_dict(),
            arm=arm,
            rank=rank,
            index=index,
            ranks=len(ranks),
            seed=config.seed,
            run_dir=str(run_dir.path),
            device=config.layout.device,
            tree=tree,
        )
        for index, rank in enumerate(ranks)
    ]


def _follow(
    watches: list[ArmWatch],
    launcher: Launcher,
    progress: Callable[[ArmProgress], None],
    patience: Patience,
) -> None:
    """Returns when each arm is over: its ranks have ended, or are given up."""
    looked_s = time.monotonic()
    while going := [watch for watch in watches if not watch.over]:
        outcomes = launcher.poll(patience.progress_s)
        # A round that took long is one in which this process stood still, and perhaps the ranks with it.
        round_s = min(time.monotonic() - looked_s, 2 * patience.progress_s)
        looked_s = time.monotonic()
        for watch in going:
            watch.look(outcomes, round_s, patience)
            progress(watch.progress())


def _over(watches: list[ArmWatch]) -> Results:
    """The results of arms that are over."""
    return {watch.arm: watch.results("lost", "") for watch in watches}


def _read_on(watches: list[ArmWatch]) -> Results:
    """The same once their ranks are gone: one that was given up may have checked, and told, what it had seen."""
    for watch in watches:
        with contextlib.suppress(RunDirectoryError):  # what was read before still counts
            watch.read()
    return _over(watches)


def _cut_short(under_way: list[ArmWatch], results: Results, why: str) -> Results:
    """The arms that were begun and have no results yet, with what their ranks have written by now."""
    cut = {}
    for watch in under_way:
        if watch.arm not in results:
            with contextlib.suppress(RunDirectoryError):  # what was read before still counts
                watch.read()
            cut[watch.arm] = watch.results("stopped", why)
    return cut
