"""One arm under way: how its ranks ended so far, what their files say of the others, when to wait no longer.

A rank that is lost gets a result made from its file, so that what it found before its death counts. Waiting is
counted in rounds of the coordinator: time in which that stood still is not held against the ranks.
"""

from __future__ import annotations

import msgspec

from stress.config_schema import Deadlines
from stress.launch.contract import RankOutcome
from stress.lost_rank import result_from_file
from stress.record import RankTail, RunDirectory
from stress.result import RankResult, RankSpec, Status

SILENT_S = 30.0  # a rank that says nothing for longer, while its peers went on, is named


class Patience(msgspec.Struct, frozen=True, kw_only=True):
    """How long the coordinator waits, in seconds of wall time."""

    progress_s: float = 1.0  # between two reports of progress
    loss_s: float = Deadlines().loss_s  # after a loss: without any rank's heartbeat
    stall_s: float = Deadlines().stall_s  # without a loss: the same


class ArmProgress(msgspec.Struct, frozen=True, kw_only=True):
    """How far an arm is. Sums are over its ranks, as of their last heartbeats or results."""

    arm: str
    ranks: int
    ranks_ended: int
    lost: tuple[int, ...]  # numbers of the ranks that are lost, in order
    requests_done: int  # finished or cancelled
    virtual_s_min: float
    virtual_s_max: float
    findings: int
    asserts: int
    silent_rank: int | None = None  # the one whose heartbeat is overdue longest, while a peer has gone on
    silent_s: float = 0.0  # wall time since its last sign of life


class ArmWatch:
    """Follows one arm. `look` once a round; `results` when it is over, or at any time before."""

    def __init__(self, specs: list[RankSpec], attn_tp_size: int, run_dir: RunDirectory) -> None:
        """Raises RunDirectoryError for a rank file that could never be read, before any rank is started."""
        self.specs = specs
        self.arm = specs[0].arm
        self._attn_tp_size = attn_tp_size
        self._outcomes: dict[int, RankOutcome] = {}
        self._tails = {spec.rank: RankTail(run_dir.rank_path(spec.arm, spec.rank)).read() for spec in specs}
        self._silent_s = dict.fromkeys(self._tails, 0.0)
        self._waited_s = 0.0  # without a sign of any rank
        self._gave_up = ""

    @property
    def over(self) -> bool:
        """Whether all ranks have ended, or it was waited in vain for those that have not."""
        return bool(self._gave_up) or len(self._outcomes) == len(self.specs)

    @property
    def begun(self) -> bool:
        """Whether any rank has said more than that it has started, as of the last read."""
        return any(
            tail.heartbeats or tail.findings or tail.assertions or tail.errors or tail.marks
            for tail in self._tails.values()
        )

    def look(self, outcomes: list[RankOutcome], round_s: float, patience: Patience) -> None:
        """Takes in what a round of `round_s` seconds brought. Raises RunDirectoryError for an unreadable file."""
        ours = {outcome.rank: outcome for outcome in outcomes if outcome.rank in self._tails}
        self._outcomes |= ours
        beaten = self.read()
        for rank in self._tails:
            self._silent_s[rank] = 0.0 if rank in beaten else self._silent_s[rank] + round_s
        self._waited_s = 0.0 if ours or beaten else self._waited_s + round_s
        after = self._loss()
        limit_s = min(patience.loss_s, patience.stall_s) if after else patience.stall_s
        if self._waited_s > limit_s and not self.over:
            self._gave_up = f"no sign of life for {limit_s:g} s{after}; stopped by the coordinator"

    def read(self) -> set[int]:
        """Reads on in all files; the ranks that have a new heartbeat. Raises RunDirectoryError."""
        before = {rank: tail.heartbeats for rank, tail in self._tails.items()}
        return {rank for rank, tail in self._tails.items() if tail.read().heartbeats > before[rank]}

    def _loss(self) -> str:
        """What tells of a lost rank so far; "" for nothing. One that is stopped never says so itself."""
        if any(outcome.result is None for outcome in self._outcomes.values()):
            return " after a peer was lost"
        if any(outcome.result.digest_partial for outcome in self._outcomes.values()):
            return " after its peers had gone on without it"
        return ""

    def results(self, status: Status, why: str) -> list[RankResult]:
        """All ranks' results in rank order, from the files as they were read last where a rank gave none.

        One that has not ended gets `status`, and `why` unless it was given up.
        """
        results = []
        for spec in self.specs:
            outcome, tail = self._outcomes.get(spec.rank), self._tails[spec.rank]
            if outcome is not None and outcome.result is not None:
                results.append(outcome.result)
                continue
            given: Status = "lost" if outcome is not None or self._gave_up else status
            told = outcome.lost if outcome is not None else self._gave_up or why
            results.append(result_from_file(spec, tail, self._attn_tp_size, given, told))
        return results

    def progress(self) -> ArmProgress:
        """How far the arm is, as of the last look."""
        states = self.results("stopped", "")
        findings = sum(
            max(sum(state.findings.values()), tail.heartbeat.findings if tail.heartbeat else 0)
            for state, tail in zip(states, self._tails.values(), strict=True)
        )
        virtual_s = [state.virtual_us / 1_000_000 for state in states]
        silent = self._longest_silent()
        return ArmProgress(
            arm=self.arm,
            ranks=len(states),
            ranks_ended=len(self._outcomes),
            lost=tuple(state.rank for state in states if state.status == "lost"),
            requests_done=sum(state.requests_finished + state.requests_cancelled for state in states),
            virtual_s_min=min(virtual_s),
            virtual_s_max=max(virtual_s),
            findings=findings,
            asserts=sum(state.asserts for state in states),
            silent_rank=silent,
            silent_s=0.0 if silent is None else self._silent_s[silent],
        )

    def _longest_silent(self) -> int | None:
        """Those that wait at an exchange are as silent as the one they wait for, but one heartbeat ahead."""
        furthest = max(tail.heartbeats for tail in self._tails.values())
        behind = [
            rank
            for rank, tail in self._tails.items()
            if rank not in self._outcomes and tail.heartbeats < furthest and self._silent_s[rank] > SILENT_S
        ]
        return max(behind, key=self._silent_s.__getitem__) if behind else None
