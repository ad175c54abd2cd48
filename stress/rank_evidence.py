"""What a rank has found and tells: findings, errors, marks, heartbeats, the clock, and at the end its RankResult.

Owns the rank's ledger, coverage and recorder and how its work has ended (`status`). Every line goes through `emit` the
moment it exists, a finding and the first error ahead of the operations that led to them, which are flushed with it.
With check.on_finding = "stop" a finding ends the work ahead of the next operation, never inside one. Decides nothing
else: no digest and no operation depends on what is told here.
"""

from __future__ import annotations

import os
import traceback

from stress.check.coverage import Coverage
from stress.check.marks import OF_SCHEDULER
from stress.check.shadow import Ledger
from stress.ending import ENDING, AskedToEnd
from stress.engine.scheduling import schedules
from stress.operator import Operator, TargetFailed
from stress.probe import Probe
from stress.rank_parts import RankParts
from stress.recorder import Recorder
from stress.result import (
    AssertLine,
    Emit,
    ErrorLine,
    Finding,
    FindingLine,
    Heartbeat,
    MarkLine,
    RankError,
    RankResult,
    RankSpec,
    StepPlans,
    utf8_text,
)
from stress.serving.state import ServingState
from stress.step_plan import GatheredPlans


class StopOnFinding(Exception):
    """check.on_finding = "stop": the rank's work ends at the first finding."""


class RankEvidence:
    """`status`: finished | stopped | asserted | errored. `errors` counts all; the first one is kept whole."""

    def __init__(self, spec: RankSpec, parts: RankParts, emit: Emit) -> None:
        config, engine = parts.config, parts.engine
        self.spec, self.parts, self.emit = spec, parts, emit
        self.recorder = Recorder(config.record.operations, emit)
        self.coverage = Coverage(engine.edges, on_mark=self._mark_reached)
        check = config.check
        self.ledger = Ledger(
            engine.pools, engine.edges, check.level, check.rules or None, on_finding=self._found
        )
        self.ledger.listen(self.coverage.observe, Coverage.kinds)
        self.status = "finished"
        self._free_at_start = [counts[1] for counts in engine.counts().values()]
        self.errors = 0
        self.first_error: RankError | None = None
        self._stops = False

    def stop_if_asked(self) -> None:
        """Ahead of each operation. Raises StopOnFinding, or AskedToEnd."""
        if self._stops:
            raise StopOnFinding
        if ENDING.asked:
            raise AskedToEnd

    def _found(self, finding: Finding) -> None:
        self.emit(FindingLine(finding=finding))
        self.recorder.flush()
        if self.parts.config.check.on_finding == "stop":
            self._stops = True

    def _mark_reached(self, mark: str, operation: int) -> None:
        self.emit(MarkLine(mark=mark, operation=operation))

    # How the work ended

    def stopped(self) -> None:
        self.status = "stopped"

    def asserted(self, operator: Operator) -> None:
        """The target's own assertion fired, and was not to be counted."""
        self.status = "asserted"
        self.emit(AssertLine(assertion=operator.first_assert))
        self.recorder.flush()

    def failed(self, operation: int, failed: TargetFailed) -> None:
        """The target raised."""
        self.status = "errored"
        error = failed.__cause__
        trace = "".join(traceback.format_exception(error))
        self.error(operation, type(error).__name__, str(error), trace)

    def error(self, operation: int, kind: str, message: str, trace: str) -> None:
        """Counts an error at `operation`; the first one is told."""
        self.errors += 1
        error = RankError(
            operation=operation,
            virtual_us=self.parts.engine.now_us,
            kind=kind,
            message=utf8_text(message),
            traceback=utf8_text(trace),
        )
        if self.first_error is None:
            self.first_error = error
            self.emit(ErrorLine(error=error))
            self.recorder.flush()

    # Once an exchange

    def tell_clock(self, probe: Probe, state: ServingState) -> None:
        """How work goes on, for the rules of progress."""
        engine = self.parts.engine
        due_us = engine.pending_us()
        never_us = engine.never_told_us() if schedules(engine) else None
        overdue_us = max([0, *(state.now_us - us for us in (due_us, never_us) if us is not None)])
        probe.clock(len(state.waiting), state.oldest_wait_us(), state.running, due_us is not None, overdue_us)

    def heartbeat(self, operator: Operator, state: ServingState) -> None:
        """Takes in the marks of engine and serving, and says how far the rank has come."""
        counts = state.counts
        for mark, count in {**self.parts.engine.marks(), **state.marks}.items():
            self.coverage.add(mark, operator.number, count - self.coverage.reached.get(mark, 0))
        self.emit(
            Heartbeat(
                virtual_us=state.now_us,
                operations=operator.number,
                requests_finished=counts["finished"],
                requests_cancelled=counts["cancelled"],
                running=state.running,
                findings=sum(self.ledger.findings.values()),
            )
        )

    def result(
        self, operator: Operator, state: ServingState, probe: Probe | None, plans: GatheredPlans
    ) -> RankResult:
        """Everything the verdict is made of, once the last exchange is over."""
        spec, (config, plan, engine, faults) = self.spec, self.parts
        layout, counts, ledger = config.layout, state.counts, self.ledger
        return RankResult(
            arm=spec.arm,
            rank=spec.rank,
            dp_rank=layout.dp_rank(spec.index),
            attn_tp_rank=layout.attn_tp_rank(spec.index),
            device=spec.device,
            pid=os.getpid(),
            status=self.status,
            asserts=operator.asserts,
            errors=self.errors,
            requests_started=counts["started"],
            requests_finished=counts["finished"],
            requests_cancelled=counts["cancelled"],
            operations=operator.number,
            virtual_us=state.last_end_us if self.status == "finished" else engine.now_us,
            digest=operator.digest.hexdigest(),
            first_assert=operator.first_assert,
            first_error=self.first_error,
            first_finding=ledger.first,
            findings=dict(ledger.findings),
            kept=list(ledger.kept),
            marks=dict(self.coverage.reached),
            faults_reached=dict(faults.reached),
            marks_exempt=sorted(engine.marks_exempt.union(() if schedules(engine) else OF_SCHEDULER)),
            rules_watched=ledger.rules_watched if probe else [],
            free_at_start=self._free_at_start,
            checker_crashed=ledger.crashed,
            rows_skipped=plan.rows_skipped,
            message="stopped at its first finding" if self.status == "stopped" else "",
            step_plans=StepPlans(**plans.told()),
        )
