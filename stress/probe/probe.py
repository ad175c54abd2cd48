"""The probe of a rank: tells the ledger what an engine's allocators do, operation by operation.

`begin(operation)` and `end()` go around every verb, `end` in a `finally`: it also tells what an operation did that
raised. After an operation that can change a request's row the probe reads its table, and the counts after one that can
have changed them. What is told is checked every `lands_every` operations, in order, and where one has raised.
`sweep()` reads everything that can be read, O(pool); `quiesce()` does so after a drain. On a GPU the ids wait on
their own copies until `landed()`, which the caller calls once a step, after a synchronize that the step has anyway.
"""

from __future__ import annotations

import sys

import numpy as np

from stress.check.all_counts import AllCounts
from stress.check.event import Cause, EventKind
from stress.check.shadow import Ledger
from stress.engine.contract import Engine, RequestSpec
from stress.operation import Kind, Operation, Rows
from stress.probe.kind_does import DOES
from stress.probe.sweep import tell_leftover, tell_sweep
from stress.probe.watches import watches_of

REFUSED = (0,)  # the answer of an extend that got no slots
MOST_EVENTS = 1024  # that wait when an operation ends: each may hold a whole table

# By themselves: up to Python 3.11 a member is looked up on its class at the price of a call.
_ENDED = EventKind.ENDED


class Probe:
    """Watches `engine.allocators()` for `ledger`, which it limits to what the engine observes.

    `content`: off, sample or full (stress.content); `bytes_per_token`: of what it stamps, with full. `closely`: one
    request in so many is watched closely (its window, locks, keys, content, live pages), one store in so many, and
    after one operation in so many the mapping is read again.
    `lands_every`: operations after which what they told is checked, on a host: 0, as it happens.
    `tells_clock`: whoever drives the engine calls `clock` at each exchange. `also`: what others tell the ledger.
    """

    def __init__(
        self,
        engine: Engine,
        ledger: Ledger,
        content: str = "off",
        bytes_per_token: int = 0,
        *,
        closely: int = 1,
        lands_every: int = 0,
        tells_clock: bool = False,
        also: frozenset[str] = frozenset(),
    ):
        told = engine.observes | {"offsets"} | also | ({"clock"} if tells_clock else set())
        ledger.limit_to(told - ({"content"} if content == "off" else set()))
        self.ledger = ledger
        self._closely = closely
        self._engine = engine
        watches = watches_of(engine, ledger, content, bytes_per_token, closely)
        self.watch, self.linker_watch, self.requests = watches.watch, watches.linker, watches.requests
        self.rows, self.locks, self._keys = watches.rows, watches.locks, watches.keys
        self.content, self.steps = watches.content, watches.steps
        self._lands_every = lands_every
        self._unseen = 0  # operations that have ended since what they told was checked
        if lands_every:
            self.watch.lands_late = True
        self._tells_writes = "writes" in engine.observes
        self._reads_counts = "counts" in engine.observes
        self._asks_owners = "owners" in engine.observes
        self._tells_reads = "reads" in engine.observes
        self._tells_live = "live" in engine.observes and self.watch.edge is not None
        self._operation = Operation(0, Kind.POLL, 0, ())
        self._does = DOES[Kind.POLL]
        self._events_before = 0
        self._failing = self._raised = False  # of the operation that ends: see `end`
        self._told: dict[str, tuple] = {}

    def open(self, spec: RequestSpec) -> None:
        """The engine knows a request from now on."""
        for told in (self._keys, self.content):
            if told is not None:
                told.open(spec)

    def close(self, rid: int) -> None:
        """The engine has forgotten a request."""
        self.requests.close(rid)
        for told in (self._keys, self.content):
            if told is not None:
                told.close(rid)

    def begin(self, operation: Operation) -> None:
        """The engine is about to be asked for `operation`."""
        number, kind, at_us, rows, _ = self._operation = operation
        does = self._does = DOES[kind]
        watch = self.watch
        rid = rows[0][0] if len(rows) == 1 and does.of_requests else -1
        watch.begin(Cause(number, kind._value_, rid, ""), at_us)
        if does.commits and self._tells_reads:
            self.requests.tell_reads(rows, self._closely)
        if self.content is not None:
            if does.commits and self.steps is None:
                self.content.before_pass(rows)
            elif does.publishes:
                self.content.before_publication(rows)
        self._events_before = watch.events

    def end(self, answer: tuple[int, ...] | None = None) -> None:
        """The engine has answered (see Operation; None: nothing), or raised."""
        watch, does = self.watch, self._does
        # An exception that ends the operation is under way; or its target raised, and the engine went on.
        self._failing = sys.exc_info()[0] is not None
        self._raised = self._failing or watch.raised
        number, _, at_us, rows, _ = self._operation
        if does.commits:
            self._after_pass(rows)
        elif does.rows:
            watch.take_cause()
            self._after_change(rows, answer)
        elif does.steps:
            watch.take_cause()
            ended = self.steps.after(self._operation.kind, answer)
            self._tell_counts()
            self._tell_ended(ended)
        elif watch.events != self._events_before:
            watch.take_cause()
            if watch.source_lent and does.of_requests:
                self.requests.tell_tables(rows)
            self._tell_counts()
        if not watch.lands_late:
            self.ledger.settle(number, at_us)
        elif not watch.reader.waits:
            self._unseen += 1
            if self._unseen >= self._lands_every or self._raised or len(watch.waiting) >= MOST_EVENTS:
                self.settle()

    def _after_pass(self, rows: Rows) -> None:
        watch = self.watch
        if watch.events != self._events_before:
            watch.take_cause()
        if watch.source_lent:
            self.requests.tell_tables(rows)
        if self.rows is not None and not self._failing:
            for rid, accepted in rows:
                self.rows.tell_pass(rid, self._engine.row_pass(rid, accepted))
        if self._tells_writes:
            self.requests.tell_writes(rows)
        if self.content is not None and not self._raised:
            if self.steps is None:
                self.content.after_pass(rows)
            else:
                self.content.after_step(rows, self.steps.take_found())
        # A pass that moves no page changes no counts; if it does even so, the next operation tells them.
        if watch.moved or self._raised:
            self._tell_counts()

    def _after_change(self, rows: Rows, answer: tuple[int, ...] | None) -> None:
        """Of requests' rows: they are read again, and what else came of the operation."""
        does, watch = self._does, self.watch
        if watch.source_lent or not does.grows:
            self.requests.tell_tables(rows)
        if does.publishes and not rows[0][0] % self._closely:
            self._tell_published(rows[0][0])
        elif does.admits:
            if self._tells_writes:
                self.requests.admitted(rows)
            if self.content is not None and answer and not self._raised:
                self.content.after_admission(rows, answer[0])
        self._tell_counts()
        if does.extends and answer == REFUSED and self._reads_counts:
            self.requests.tell_refused(rows)
        if does.ends:
            self._tell_ended([rid for rid, _ in rows])

    def _tell_ended(self, rids: list[int]) -> None:
        """What the engine still has of requests that have ended, where it has anything."""
        watch, method = self.watch, "raised" if self._raised else "end"
        for rid in rids if self._asks_owners else ():
            kept = self._engine.kept_of(rid)
            if any(kept):
                with watch.about(rid):
                    watch.tell(_ENDED, watch.source.name, np.array(kept, dtype=np.int64), None, method)

    def abandon(self, *, checking: bool) -> None:
        """The operation was cut short from outside: `settle` checks what was told before it. Not amid `checking`, which
        leaves nothing to go by."""
        self.watch.drop(everything=checking)

    def landed(self) -> None:
        """The device was waited for: on a GPU what was told until now is checked. On a host nothing hangs on it."""
        if self.watch.reader.waits:
            self.settle()

    def land(self) -> None:
        """What was told is checked, also of an operation that has not ended. On a GPU its copies have landed."""
        self._unseen = 0
        if self.watch.lands_late:
            self.watch.land()

    def settle(self) -> None:
        """What was told is checked, and what must hold between operations."""
        self._unseen = 0
        self.watch.settle(self._operation.number, self._operation.at_us)

    def clock(self, waiting: int, oldest_us: int, running: int, transfers: int, overdue_us: int) -> None:
        """How work goes on, once an exchange; see EventKind.CLOCK."""
        now = np.array((waiting, oldest_us, running, transfers, overdue_us), dtype=np.int64)
        self.watch.call += 1
        self.watch.tell(EventKind.CLOCK, self.watch.source.name, now, None, "exchange")
        self.settle()

    def sweep(self) -> None:
        """Reads free lists, mapping, cache and counters whole. Between operations."""
        self._settle_on_host()  # the last one's end comes first
        tell_sweep(self._engine, self.watch, self.content)
        self._settle_on_host()

    def quiesce(self) -> None:
        """After a drain: a sweep, and what is still locked, pinned, loading, offloading or running."""
        self.sweep()
        tell_leftover(self._engine, self.watch)
        self._settle_on_host()

    def _settle_on_host(self) -> None:
        if not self.watch.reader.waits:
            self.settle()

    def _tell_published(self, rid: int) -> None:
        """What the cache says of the path that was published: which pages are live, and by which keys it is found."""
        watch = self.watch
        if self._tells_live and not self._failing:
            watch.tell(EventKind.LIVE, watch.edge.target, self._engine.published_live(), None, "publish")
        if self._keys is not None and not self._raised:
            self._keys.published(rid)

    def _tell_counts(self) -> None:
        """Counts that have changed; those of the source pool, whose pages have owners, also where pages have moved."""
        watch, raised = self.watch, self._raised
        moved = watch.moved or raised
        watch.moved = False
        known = self._engine.counts() if self._reads_counts else {}
        if len(known) < len(watch.pools):
            uncounted = (pool for pool in watch.pools if pool.name not in known)
            known = known | {pool.name: (pool.shape.pages, pool.free_pages()) for pool in uncounted}
        before = self._told
        if not moved and known == before:
            return
        self._told = known
        counts = AllCounts(watch.cause, watch.call, watch.now_us, known, before, moved)
        watch.tell_counts(counts, raised=raised)
