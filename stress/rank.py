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

from collections.abc import Generator
from contextlib import suppress
from functools import partial

from allocator.faults.log import NO_FAULTS, FaultLog
from stress.config import Config
from stress.ending import ENDING, AskedToEnd
from stress.engine.contract import Engine
from stress.operation import Operation
from stress.operator import Operator, TargetFailed
from stress.payload import Payload, payload_of
from stress.rank_evidence import RankEvidence, StopOnFinding
from stress.rank_parts import (
    RankParts,
    build_ballast,
    build_loop,
    build_parts,
    build_probe,
    join_group,
    request_spec,
)
from stress.result import Emit, RankResult, RankSpec
from stress.serving.state import ServingState
from stress.serving.timing import timing_of
from stress.share import planned_requests
from stress.step_plan import GatheredPlans
from stress.tp_word import TPWord
from stress.workload.plan import Plan


def run_rank(spec: RankSpec, emit: Emit) -> Generator[bytes, list[bytes], RankResult]:
    """Runs one rank of one arm; see the module. Yields payloads, is sent the arm's payloads in rank order."""
    config, plan, engine, faults = build_parts(spec)
    rank = Rank(spec, config, plan, engine, emit, faults)
    return (yield from rank.exchanges())


class Rank:
    """What one rank is made of, joined up; what it has found so far is in `evidence`."""

    def __init__(
        self,
        spec: RankSpec,
        config: Config,
        plan: Plan,
        engine: Engine,
        emit: Emit,
        faults: FaultLog = NO_FAULTS,
    ) -> None:
        self.spec, self.config, self.engine = spec, config, engine
        parts = RankParts(config, plan, engine, faults)
        self.layout = config.layout.of(spec.ranks)
        self.evidence = RankEvidence(spec, parts, emit)
        self.group = join_group(spec, parts, self.evidence.ledger)
        self.probe = build_probe(parts, self.evidence.ledger, self.group)
        self.operator = Operator(
            engine,
            self.probe,
            self._record,
            self.evidence.stop_if_asked,
            level=config.check.level,
            count_asserts=config.check.on_assert == "count",
            faults=faults,
        )
        planned = planned_requests(plan, config.layout.dp_rank(spec.index))
        spec_of = partial(request_spec, plan)
        self.state = ServingState(
            self.operator, planned, spec_of, timing_of(config.serving), self._request_stuck
        )
        self.ballast = build_ballast(parts, self.operator)
        self.loop = build_loop(spec, config, engine, self.state)
        self.plans = GatheredPlans()
        if self.group is not None and self.group.agreed is not None:
            self.state.may_admit = self.group.may_admit

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
            if self.probe is not None:
                self.evidence.tell_clock(self.probe, self.state)
            self.evidence.heartbeat(self.operator, self.state)
            own = self.state.take_plan(boundary_us)
            # The group's word first: it takes in what has ended here, and that is news.
            word = self._word()
            payloads = yield Payload(own, done, word, self.engine.exchange()).pack()
            heard = [payload_of(payload, in_groups=word is not None) for payload in payloads]
            table = [told and told.plan for told in heard]
            if self.plans.add(own, table):
                self.evidence.coverage.add("idle_rank", self.operator.number)
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
        self.evidence.recorder.flush()
        return self.evidence.result(self.operator, self.state, self.probe, self.plans)

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
            self.evidence.stopped()
            self.operator.settle()
        except AssertionError:
            self.evidence.asserted(self.operator)
            self.operator.settle()
        except TargetFailed as failed:
            self.evidence.failed(self.operator.number, failed)
            self.operator.settle()
        except AskedToEnd:
            self.operator.settle()
            self.evidence.recorder.flush()
            raise
        except BaseException:
            # A read of a corrupt target may have failed, or the loop on its answer: what led there was seen.
            with suppress(Exception):  # the first error is the one to tell
                self.operator.show()
            raise
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

    def _word(self) -> TPWord | None:
        if self.group is None:
            return None
        waiting = [request.rid for request in self.state.waiting]
        return self.group.word(waiting, self.state.now_us, ended=self.evidence.status != "finished")

    def _record(self, operation: Operation) -> None:
        ENDING.amid = False  # half of a block would spoil the file
        self.evidence.recorder.record(operation)
        ENDING.amid = True
        if self.group is not None and self.probe is not None:
            self.group.fold(operation, self.engine.standing())

    def _request_stuck(self, rid: int, why: str) -> None:
        self.evidence.error(self.operator.number, "RequestStuck", f"request {rid} {why}", "")
