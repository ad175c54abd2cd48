"""One rank: the plan's share x serving loop x engine x checks, as a generator that yields exchanges.

No Ray, no torch.distributed and no files here: whoever drives the generator passes the payloads on and writes the
first and last line of the rank's file; `emit` gets each line of evidence the moment it exists. A target's assertion
or exception ends the rank's work, not the generator: it goes on yielding until every rank is done, so that all ranks
of an arm yield equally often. A payload is the rank's step plan, a byte that says whether it is done, its word to its
attention-TP group where that has other members (stress.tp_group), and news of the store: each store holds the shards of
its place in the group, so it learns from the ranks of the same place alone. In lock step the gathered plans bind: each
rank goes on from the latest time that any of them has reached.
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Generator

from allocator.faults.log import NO_FAULTS, FaultLog, with_faults
from stress.check.coverage import Coverage
from stress.check.shadow import Ledger
from stress.config import Config, from_dict
from stress.config_schema import Layout
from stress.engine.contract import Engine, RequestSpec
from stress.engine.targets import build_engine
from stress.fault_name import parse_faults
from stress.operation import Operation
from stress.operator import Operator, TargetFailed
from stress.payload import Payload, payload_of
from stress.probe import Probe
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
from stress.serving.acceptance import Acceptance
from stress.serving.ballast import Ballast
from stress.serving.loop import ServingLoop
from stress.serving.state import ServingState
from stress.serving.timing import timing_of
from stress.share import planned_requests, warm_of
from stress.step_plan import GatheredPlans
from stress.tp_faults import RANK_FAULTS
from stress.tp_group import TPGroup
from stress.tp_word import TPWord
from stress.workload.plan import Plan, build_plan
from stress.workload.tokens import page_tokens


def run_rank(spec: RankSpec, emit: Emit) -> Generator[bytes, list[bytes], RankResult]:
    """Runs one rank of one arm; see the module. Yields payloads, is sent the arm's payloads in rank order."""
    config = from_dict(spec.config)
    arm = config.arms.record(spec.arm)
    # The ranks of an attention-TP group serve the same requests: a plan's share is a DP rank's.
    layout, page_size = config.layout.of(spec.ranks), config.pool.page_size
    plan = build_plan(
        config.workload, config.serving, seed=spec.seed, page_size=page_size, ranks=layout.dp_size
    )
    warm = warm_of(config, plan, layout.dp_rank(spec.index))
    named = parse_faults(arm.fault)
    mine = named.of_rank(spec.rank)
    faults = FaultLog(() if named.dry else mine, mine if named.dry else ())
    engine = build_engine(config, arm, spec.device, warm, spec.tree, faults, spec.rank)
    rank = Rank(spec, config, plan, engine, emit, faults)
    return (yield from rank.exchanges())


class Rank:
    """What one rank is made of, and what it has found so far."""

    def __init__(
        self,
        spec: RankSpec,
        config: Config,
        plan: Plan,
        engine: Engine,
        emit: Emit,
        faults: FaultLog = NO_FAULTS,
    ) -> None:
        self.spec, self.config, self.plan, self.engine, self.emit = spec, config, plan, engine, emit
        self.faults = faults
        self.recorder = Recorder(config.record.operations, emit)
        self.coverage = Coverage(engine.edges, on_mark=self._mark_reached)
        self.ledger = Ledger(engine.pools, engine.edges, config.check.level, on_finding=self._found)
        self.ledger.listen(self.coverage.observe, Coverage.kinds)
        self.layout = config.layout.of(spec.ranks)
        self.group = self._join_group(self.layout)
        check = config.check
        self.probe = None
        if check.level:
            self.probe = Probe(
                engine,
                self.ledger,
                check.content_checked,
                check.bytes_per_token,
                tells_clock=True,
                also=self.group.observes if self.group is not None else frozenset(),
            )
        self.operator = Operator(
            engine,
            self.probe,
            self._record,
            self._stop_if_asked,
            level=config.check.level,
            count_asserts=config.check.on_assert == "count",
            faults=faults,
        )
        serving = config.serving
        planned = planned_requests(plan, config.layout.dp_rank(spec.index))
        self.state = ServingState(
            self.operator, planned, self._request_spec, timing_of(serving), self._request_stuck
        )
        accept_millionths = round(serving.accept_mean * 1_000_000)
        self.ballast = Ballast(
            self.operator,
            config.workload.ballast,
            first_rid=plan.n,
            tokens_of=lambda keys, lo, hi: page_tokens(keys, plan.page_size, lo, hi),
        )
        self.loop = ServingLoop(self.state, Acceptance(spec.seed, serving.draft_tokens, accept_millionths))
        self.plans = GatheredPlans()
        if self.group is not None and self.group.agreed is not None:
            self.state.may_admit = self.group.may_admit
        self.status = "finished"
        self.errors = 0
        self.first_error: RankError | None = None
        self.stopped = False

    # The generator

    def exchanges(self) -> Generator[bytes, list[bytes], RankResult]:
        interval_us = self.config.layout.exchange_ms * 1000
        lock_step = interval_us == 0
        boundary_us = 0
        done = False
        while True:
            boundary_us += interval_us
            if not done:
                done = self._work(None if lock_step else boundary_us)
            self._heartbeat()
            own = self.state.take_plan(boundary_us)
            # The group's word first: it takes in what has ended here, and that is news.
            word = self._word()
            payloads = yield Payload(own, done, word, self.engine.exchange()).pack()
            heard = [payload_of(payload, in_groups=word is not None) for payload in payloads]
            table = [told and told.plan for told in heard]
            if self.plans.add(own, table):
                self.coverage.add("idle_rank", self.operator.number)
            words = [told and told.word for told in heard]
            parted = self.group is not None and self.group.hear(words, self.state.now_us)
            if not parted and all(told is None or told.done for told in heard):
                break
            self.engine.learn(self._news(heard))
            if lock_step:
                # A step takes as long as the slowest rank's; one that is done stays where it ended.
                boundary_us = max(plan.reached_us for plan in table if plan is not None)
                if not done:
                    self.state.set_now(boundary_us)
        self.recorder.flush()
        return self._result()

    def _news(self, heard: list[Payload | None]) -> list[bytes]:
        """What other stores of shards of this rank's place have got."""
        place, own = self.layout.attn_tp_rank, self.spec.index
        others = (
            told for rank, told in enumerate(heard) if told and rank != own and place(rank) == place(own)
        )
        return [told.news for told in others if told.news]

    def _work(self, boundary_us: int | None) -> bool:
        """Up to the boundary; None: one step. True when nothing more is to do: drained, or the target failed."""
        try:
            if not self.operator.number:
                self.ballast.load()
            if not (self.loop.run_step() if boundary_us is None else self.loop.run_until(boundary_us)):
                return False
            if self._awaits_group():
                return False
            self._drain()
        except StopOnFinding:
            self.status = "stopped"
            self.operator.settle()
        except AssertionError:
            self.status = "asserted"
            self.emit(AssertLine(assertion=self.operator.first_assert))
            self.recorder.flush()
            self.operator.settle()
        except TargetFailed as failed:
            self.status = "errored"
            error = failed.__cause__
            trace = "".join(traceback.format_exception(error))
            self._error(type(error).__name__, str(error), trace)
            self.operator.settle()
        return True

    def _awaits_group(self) -> bool:
        """Every request has ended; transfers that end by agreement need one exchange more."""
        if self.group is None or self.group.agreed is None:
            return False
        while (due_us := self.operator.pending_us()) is not None:
            if due_us > self.state.now_us:
                self.state.set_now(due_us)
                return True
            self.operator.poll()
        return False

    def _drain(self) -> None:
        """Every request has ended: transfers end, the cache is emptied, and the pools must be whole."""
        self.ballast.release()
        while (due_us := self.operator.pending_us()) is not None:
            self.operator.now_us = max(self.operator.now_us, due_us)
            self.operator.poll()
        self.operator.drain()

    def _join_group(self, layout: Layout) -> TPGroup | None:
        """Its attention-TP group, where that has other members; what these agree on needs an exchange every step."""
        if layout.attn_tp_size == 1:
            return None
        agreed = self.engine.join(layout.attn_tp_size) if layout.exchange_ms == 0 else None
        group = with_faults(TPGroup, RANK_FAULTS, self.faults)
        return group(layout, self.spec.index, agreed, self.engine.lookup_keys, self.ledger)

    def _word(self) -> TPWord | None:
        if self.group is None:
            return None
        waiting = [request.rid for request in self.state.waiting]
        return self.group.word(waiting, self.state.now_us, ended=self.status != "finished")

    def _record(self, operation: Operation) -> None:
        self.recorder.record(operation)
        if self.group is not None and self.probe is not None:
            self.group.fold(operation, self.engine.standing())

    # Evidence

    def _stop_if_asked(self) -> None:
        if self.stopped:
            raise StopOnFinding

    def _found(self, finding: Finding) -> None:
        self.emit(FindingLine(finding=finding))
        self.recorder.flush()
        if self.config.check.on_finding == "stop":
            self.stopped = True

    def _mark_reached(self, mark: str, operation: int) -> None:
        self.emit(MarkLine(mark=mark, operation=operation))

    def _request_stuck(self, rid: int, why: str) -> None:
        self._error("RequestStuck", f"request {rid} {why}", "")

    def _error(self, kind: str, message: str, trace: str) -> None:
        self.errors += 1
        error = RankError(
            operation=self.operator.number,
            virtual_us=self.engine.now_us,
            kind=kind,
            message=utf8_text(message),
            traceback=utf8_text(trace),
        )
        if self.first_error is None:
            self.first_error = error
            self.emit(ErrorLine(error=error))
            self.recorder.flush()

    def _tell_clock(self) -> None:
        state, due_us = self.state, self.engine.pending_us()
        overdue_us = 0 if due_us is None else max(0, state.now_us - due_us)
        self.probe.clock(
            len(state.waiting), state.oldest_wait_us(), state.running, due_us is not None, overdue_us
        )

    def _heartbeat(self) -> None:
        if self.probe is not None:
            self._tell_clock()
        counts = self.state.counts
        for mark, count in {**self.engine.marks(), **self.state.marks}.items():
            self.coverage.add(mark, self.operator.number, count - self.coverage.reached.get(mark, 0))
        self.emit(
            Heartbeat(
                virtual_us=self.state.now_us,
                operations=self.operator.number,
                requests_finished=counts["finished"],
                requests_cancelled=counts["cancelled"],
                running=self.state.running,
                findings=sum(self.ledger.findings.values()),
            )
        )

    def _request_spec(self, rid: int, prompt_tokens: int, output_tokens: int) -> RequestSpec:
        plan, namespace = self.plan, int(self.plan.namespace[rid])
        return RequestSpec(
            rid=rid,
            namespace=namespace,
            prompt_tokens=prompt_tokens,
            output_tokens=output_tokens,
            keys=plan.keys(rid),
            tokens=lambda lo, hi: plan.tokens(rid, lo, hi),
            session=int(plan.session[rid]),
            texts=plan.texts(rid) if namespace else None,
        )

    def _result(self) -> RankResult:
        spec, layout, counts, ledger = self.spec, self.config.layout, self.state.counts, self.ledger
        return RankResult(
            arm=spec.arm,
            rank=spec.rank,
            dp_rank=layout.dp_rank(spec.index),
            attn_tp_rank=layout.attn_tp_rank(spec.index),
            device=spec.device,
            pid=os.getpid(),
            status=self.status,
            asserts=self.operator.asserts,
            errors=self.errors,
            requests_started=counts["started"],
            requests_finished=counts["finished"],
            requests_cancelled=counts["cancelled"],
            operations=self.operator.number,
            virtual_us=self.state.last_end_us if self.status == "finished" else self.engine.now_us,
            digest=self.operator.digest.hexdigest(),
            first_assert=self.operator.first_assert,
            first_error=self.first_error,
            first_finding=ledger.first,
            findings=dict(ledger.findings),
            kept=list(ledger.kept),
            marks=dict(self.coverage.reached),
            faults_reached=dict(self.faults.reached),
            marks_exempt=sorted(self.engine.marks_exempt),
            rules_watched=ledger.rules_watched if self.probe else [],
            checker_crashed=ledger.crashed,
            rows_skipped=self.plan.rows_skipped,
            message="stopped at its first finding" if self.status == "stopped" else "",
            step_plans=StepPlans(**self.plans.told()),
        )


class StopOnFinding(Exception):
    """check.on_finding = "stop": the rank's work ends at the first finding."""
