"""Runs a nightly: the kept seeds that failed before, then the canary, then the rest of the matrix.

Each run goes the way of `kvstress run` into a folder of its own; how, the caller says (`execute`). One run's
trouble costs no other run: what could not be run is unknown. After each run the history is told and the
documents are written again. Wall time appears here and in the reports alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import msgspec

from stress.config import ConfigError
from stress.junit import junit_bytes
from stress.nightly_folder import replace_file
from stress.nightly_history import History, KeptSeed
from stress.nightly_junit import suites_of
from stress.nightly_matrix import Matrix
from stress.nightly_summary import summary_text
from stress.nightly_verdict import Made, Outcome, Planned, canary_outcome, nightly_document, run_outcome
from stress.record import RunDirectory, RunWriteError

Execute = Callable[[Planned, Path], tuple[dict[str, Any], bool]]
"""(run, its folder) -> its verdict document, and whether the user interrupted it"""


class RunProblem(Exception):
    """A run that `execute` could not make: one sentence."""


def planned_runs(matrix: Matrix, kept: list[KeptSeed]) -> tuple[list[Planned], list[KeptSeed]]:
    """The runs in their order, without the canary, and the kept seeds of other matrices.

    Kept seeds come first in the order of the history, also those that the matrix does not name; then every case
    with the first seed, every case with the second, and so on.
    """
    runs: dict[str, Planned] = {}
    others = []
    for each in kept:
        case = next((case for case in matrix.cases if each.is_of(case)), None)
        if case is None:
            others.append(each)
        else:
            planned = Planned(case=case, seed=each.seed, kept=True)
            runs.setdefault(planned.name, planned)
    for seed in matrix.seeds:
        for case in matrix.cases:
            planned = Planned(case=case, seed=seed)
            runs.setdefault(planned.name, planned)
    return list(runs.values()), others


class Nightly:
    """One night's runs, and what is known of them so far."""

    def __init__(self, matrix: Matrix, folder: Path, history: History, launcher: str) -> None:
        self.runs, self._others = planned_runs(matrix, history.read())
        self.canary = Planned(case=matrix.canary, seed=matrix.canary_seed)
        self.interrupted = False
        self._history_problem = ""
        self._matrix, self._folder, self._history, self._launcher = matrix, folder, history, launcher
        self._made: dict[str, Made] = {}
        self._started_utc, self._began_s = _now_utc(), time.monotonic()

    def run(self, execute: Execute, tell: Callable[[str], None]) -> dict[str, Any]:
        """Makes all runs; returns the verdict document, which is written. `tell` gets a line a run.

        Raises RunWriteError when the folder can't be written any more.
        """
        try:
            self.write()
            order = self._order()
            for number, planned in enumerate(order, start=1):
                made = self._make(planned, execute)
                self._made[planned.name] = made
                outcome = self._outcome(planned)
                told = f"failed before, {outcome.verdict}" if planned.kept else outcome.verdict
                if planned is self.canary:
                    told = (
                        "failed, as it must" if outcome.verdict == "pass" else f"must fail: {outcome.verdict}"
                    )
                tell(f"{number}/{len(order)} {planned.name}: {told}, {made.wall_s:.1f} s")
                if planned is not self.canary and not self.interrupted:
                    self._keep(outcome, tell)
                self.write()
                if self.interrupted:
                    break
        except KeyboardInterrupt:  # the only one: further signals are ignored
            self.interrupted = True
        return self.write()

    def write(self) -> dict[str, Any]:
        """Writes the documents of what is known now; returns the verdict document. Raises RunWriteError."""
        canary = self._outcome(self.canary)
        runs = [self._outcome(planned) for planned in self.runs]
        history = {
            "file": str(self._history.path),
            "run_first": sum(planned.kept for planned in self.runs),
            "of_other_matrices": len(self._others),
            "problem": self._history_problem or None,
        }
        document = nightly_document(
            self._matrix.name,
            self._launcher,
            self._matrix.seeds,
            canary,
            runs,
            history=history,
            started_utc=self._started_utc,
            wall_s=time.monotonic() - self._began_s,
            interrupted=self.interrupted,
        )
        suites = suites_of(canary, runs, self._launcher, self._started_utc)
        replace_file(self._folder / "junit.xml", junit_bytes(f"kvstress {self._matrix.name}", suites))
        summary = summary_text(document, canary, runs)
        replace_file(self._folder / "summary.md", summary.encode("utf-8", "replace"))
        RunDirectory(self._folder).write_verdict(document)
        return document

    def _keep(self, outcome: Outcome, tell: Callable[[str], None]) -> None:
        """Tells the history; a history that can't be written costs the night no run."""
        planned, reason = outcome.planned, outcome.reasons[0] if outcome.reasons else ""
        try:
            self._history.tell(planned.case, planned.seed, outcome.verdict, reason, _now_utc())
        except (ConfigError, RunWriteError) as error:
            self._history_problem = str(error)
            tell(f"{planned.name} is not in the history: {error}")

    def _order(self) -> list[Planned]:
        kept = [planned for planned in self.runs if planned.kept]
        return [*kept, self.canary, *self.runs[len(kept) :]]

    def _outcome(self, planned: Planned) -> Outcome:
        made = self._made.get(planned.name)
        return canary_outcome(planned, made) if planned is self.canary else run_outcome(planned, made)

    def _make(self, planned: Planned, execute: Execute) -> Made:
        started_utc, began_s, since_s = _now_utc(), time.monotonic(), time.time()
        folder = self._folder / planned.name
        made = Made(started_utc=started_utc)
        try:
            document, self.interrupted = execute(planned, folder)
            rank_wall_s = _rank_wall_s(document, folder, since_s)
            made = Made(document=document, started_utc=started_utc, rank_wall_s=rank_wall_s)
        except RunProblem as problem:
            made = Made(problem=str(problem), started_utc=started_utc)
        return msgspec.structs.replace(made, wall_s=time.monotonic() - began_s)


def _rank_wall_s(document: dict[str, Any], folder: Path, since_s: float) -> dict[str, float]:
    """Wall seconds of each rank, from the start of its arm to the last line of its file.

    An arm starts when the arms before it that had one of its ranks have ended; in parallel none has.
    """
    run, seconds = RunDirectory(folder), {}
    ended_s: dict[int, float] = {}  # by rank: when the last arm that had it ended
    for arm, entry in document["arms"].items():
        ends = {}
        for rank in entry["ranks"]:
            path = run.rank_path(arm, rank["rank"])
            if path.exists():
                ends[rank["rank"]] = path.stat().st_mtime
        arm_since_s = max([since_s, *(ended_s[rank] for rank in ends if rank in ended_s)])
        seconds |= {f"{arm}-{rank}": max(0.0, end - arm_since_s) for rank, end in ends.items()}
        ended_s |= dict.fromkeys(ends, max(ends.values(), default=since_s))
    return seconds


def _now_utc() -> str:
    return f"{datetime.now(timezone.utc):%Y-%m-%dT%H:%M:%SZ}"
