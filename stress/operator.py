"""The engine as the serving loop sees it: every verb numbered, watched, recorded and folded into the digest.

Owns the rank's one operation counter. A verb runs between `probe.begin` and `probe.end`, also when it raises, so
that what was seen before an assertion fired is checked; not when it is cut short from outside. An assertion is kept
(`first_assert`) and raised again; with `on_assert = "count"` one at the end of a free group is only counted, since the
pages are on the free list by then. What is only read (room, what is due) is the engine's own method, without a number.
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable

from allocator.faults.log import NO_FAULTS, FaultLog
from stress.digest import Digest
from stress.ending import ENDING
from stress.engine.contract import Admission, Engine, RequestSpec
from stress.engine.scheduling import Step
from stress.operation import Kind, Operation, Rows
from stress.result import Assertion, utf8_text

# Operations from one sweep to the next, by check level; a sweep never comes inside result processing.
SWEEP_OPERATIONS = {2: 1000, 3: 1}
NEVER = 1 << 62
# Where upstream's assertion fires at the very end of the verb.
_COUNTABLE = frozenset({Kind.RESULTS_END, Kind.EVICT_WINDOWS})
# After these the pools are at rest: their free pages are the answer.
_COUNTED = frozenset({Kind.RESULTS_END, Kind.DRAIN})


class TargetFailed(Exception):
    """The target raised, in the operation that this names; `__cause__` is what it raised."""


class Operator:
    """`probe`: stress.probe.Probe, or None at `level` 0. `record` gets every operation once it has run; `before` is
    called ahead of each one and may end the work by raising. `faults` are told the number of each operation."""

    def __init__(
        self,
        engine: Engine,
        probe,
        record: Callable[[Operation], None],
        before: Callable[[], None],
        *,
        level: int,
        count_asserts: bool,
        faults: FaultLog = NO_FAULTS,
    ) -> None:
        self._engine = engine
        self._probe = probe
        self._record = record
        self._before = before
        self._count_asserts = count_asserts
        self._faults = faults
        self._sweep_operations = SWEEP_OPERATIONS.get(level, NEVER)
        self._next_sweep = self._sweep_operations
        self._in_results = False
        self.digest = Digest()
        self.number = 0
        self.asserts = 0
        self.first_assert: Assertion | None = None
        self.page_size = engine.page_size
        self.room = engine.room
        self.next_window_eviction = engine.next_window_eviction
        self.pending_us = engine.pending_us
        self.loads_due_us = engine.loads_due_us
        self.failed_loads = engine.failed_loads
        self.landed = engine.landed
        # Of an engine that schedules by itself.
        self.transfer_of = getattr(engine, "transfer_of", None)
        self.failures_told = getattr(engine, "failures_told", None)

    @property
    def now_us(self) -> int:
        return self._engine.now_us

    @now_us.setter
    def now_us(self, now_us: int) -> None:
        self._engine.now_us = now_us

    def open(self, spec: RequestSpec) -> None:
        self._engine.open(spec)
        if self._probe is not None:
            self._probe.open(spec)

    def close(self, rid: int) -> None:
        self._engine.close(rid)
        if self._probe is not None:
            self._probe.close(rid)

    def _issue(self, kind: Kind, rows: Rows, verb: Callable, *arguments):
        self._before()
        self.number += 1
        self._faults.operation = self.number
        operation = Operation(self.number, kind, self._engine.now_us, rows)
        answer, cut_short = None, False
        try:
            ENDING.amid = True
            if self._probe is not None:
                self._probe.begin(operation)
            try:
                result = self._run(operation, verb, arguments)
                answer = self._answer(kind, result)
            except KeyboardInterrupt:
                cut_short = True
                raise
            finally:
                if not cut_short:  # what raised is recorded too, and what was seen before that is checked
                    self._record(operation._replace(answer=answer))
                    if self._probe is not None:
                        self._probe.end(answer)
            if self._probe is not None and self.number >= self._next_sweep and not self._in_results:
                self._next_sweep = self.number + self._sweep_operations
                self._probe.sweep()
        except KeyboardInterrupt:
            if self._probe is not None:
                self._probe.abandon(checking=not ENDING.amid)
            raise
        finally:
            ENDING.amid = False
        self.digest.operation(operation._replace(answer=answer))
        return result

    def _answer(self, kind: Kind, result) -> tuple[int, ...]:
        """What the engine said, as integers; see Operation."""
        if kind in _COUNTED:
            return tuple(counts[1] for counts in self._engine.counts().values())
        if kind is Kind.SCHEDULE:
            return result.answer()
        if kind is Kind.UPDATE:
            return (sum(counts[1] for counts in self._engine.counts().values()), *result)
        if kind is Kind.ADMIT:
            return () if result is None else (result.cached, result.loaded)
        return () if result is None else (int(result),)

    def _run(self, operation: Operation, verb: Callable, arguments: tuple):
        try:
            return verb(*arguments)
        except AssertionError as error:
            self.asserts += 1
            if self.first_assert is None:
                self.first_assert = Assertion(
                    operation=operation.number,
                    virtual_us=operation.at_us,
                    where=raised_in(error),
                    message=utf8_text(str(error)) or asserted_line(error),
                )
            if not (self._count_asserts and operation.kind in _COUNTABLE):
                raise
            return None
        except Exception as error:
            # An exception of the target is a result; one of the loop or of a check is not, and must not look like it.
            raise TargetFailed(operation.describe()) from error

    # The verbs

    def admit(self, rid: int, spare: int) -> Admission | None:
        return self._issue(Kind.ADMIT, ((rid, spare),), self._engine.admit, rid, spare)

    def extend(self, rows: list[tuple[int, int]]) -> bool:
        return self._issue(Kind.EXTEND, tuple(rows), self._engine.extend, rows)

    def reserve(self, rows: list[tuple[int, int]]) -> bool:
        return self._issue(Kind.RESERVE, tuple(rows), self._engine.reserve, rows)

    def commit(self, rows: list[tuple[int, int]]) -> None:
        self._issue(Kind.COMMIT, tuple(rows), self._engine.commit, rows)

    def results_begin(self) -> None:
        self._in_results = True
        self._issue(Kind.RESULTS_BEGIN, (), self._engine.results_begin)
        if self._probe is not None:
            # The engine has just waited for the forward pass: on a GPU the copies of page ids have landed too.
            self._probe.landed()

    def results_end(self) -> None:
        self._in_results = False
        self._issue(Kind.RESULTS_END, (), self._engine.results_end)

    def checkpoint(self, rid: int) -> None:
        self._issue(Kind.CHECKPOINT, ((rid, 0),), self._engine.checkpoint, rid)

    def evict_windows(self, rids: list[int]) -> None:
        rows = tuple((rid, 0) for rid in rids)
        self._issue(Kind.EVICT_WINDOWS, rows, self._engine.evict_windows, rids)

    def finish(self, rid: int) -> None:
        self._issue(Kind.FINISH, ((rid, 0),), self._engine.finish, rid)

    def abort(self, rid: int) -> None:
        self._issue(Kind.ABORT, ((rid, 0),), self._engine.abort, rid)

    def retract(self, rid: int) -> None:
        self._issue(Kind.RETRACT, ((rid, 0),), self._engine.retract, rid)

    # Of an engine that schedules by itself

    def submit(self, rid: int, priority: int) -> None:
        self._issue(Kind.SUBMIT, ((rid, priority),), self._engine.submit, rid, priority)

    def schedule(self) -> Step:
        return self._issue(Kind.SCHEDULE, (), self._engine.schedule)

    def update(self, rows: list[tuple[int, int]]) -> tuple[int, ...]:
        return self._issue(Kind.UPDATE, tuple(rows), self._engine.update, rows)

    def evict(self, full: int, swa: int) -> None:
        self._issue(Kind.EVICT, ((0, full), (1, swa)), self._engine.evict, full, swa)

    def poll(self) -> int:
        return self._issue(Kind.POLL, (), self._engine.poll)

    def drain(self) -> None:
        self._issue(Kind.DRAIN, (), self._engine.drain)
        if self._probe is not None:
            self._probe.quiesce()
            self.settle()

    def end_step(self) -> None:
        """A step without results is over: on a GPU what it showed is judged now."""
        if self._probe is not None:
            self._engine.synchronize()
            self._probe.landed()

    def show(self) -> None:
        """What was seen is checked, where an exception has left the operation at hand without an end."""
        if self._probe is not None:
            self._engine.synchronize()
            self._probe.land()

    def settle(self) -> None:
        """Everything seen so far is checked; on a GPU this waits for its copies."""
        if self._probe is not None:
            self._engine.synchronize()
            self._probe.settle()


def raised_in(error: BaseException) -> str:
    """The innermost public function of the traceback: `free_group_end`, not the helper that compares."""
    names = [frame.name for frame in traceback.extract_tb(error.__traceback__)]
    public = [name for name in names if not name.startswith("_")]
    return (public or names or ["?"])[-1]


def asserted_line(error: AssertionError) -> str:
    """The source line of an assert that has no message, with its place."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f"{frame.line} ({os.path.basename(frame.filename)}:{frame.lineno})"
