"""The probe of a rank: tells the ledger what an engine's allocators do, operation by operation.

`begin(operation)` and `end()` go around every verb, `end` in a `finally`: it also tells what an operation did that
raised. After an operation that can change a request's row the probe reads its table, and after every one the counts.
`sweep()` reads everything that can be read, O(pool); `quiesce()` does so after a drain. On a GPU the ids wait on
their own copies until `settle()`, which the caller calls once a step, after a synchronize that the step has anyway.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass

import numpy as np

from stress.check.event import Cause, EventKind
from stress.check.shadow import Ledger
from stress.content import Content
from stress.engine.contract import Engine, RequestSpec
from stress.operation import Kind, Operation
from stress.probe.allocator_watch import Watch
from stress.probe.cache_watch import CacheWatch
from stress.probe.key_watch import KeyWatch
from stress.probe.linker_watch import LinkerWatch
from stress.probe.request_watch import RequestWatch
from stress.probe.row_watch import RowWatch

REFUSED = (0,)  # the answer of an extend that got no slots

# By themselves: up to Python 3.11 a member is looked up on its class at the price of a call.
_COUNTS, _ENDED = EventKind.COUNTS, EventKind.ENDED


@dataclass(slots=True)
class _Does:
    """What an operation of some kind can do: looked up once an operation."""

    rows: bool  # change requests' rows
    grows: bool  # lengthen them alone
    extends: bool
    ends: bool  # end requests
    publishes: bool
    commits: bool
    admits: bool
    of_requests: bool  # its rows are requests


_DOES = {
    kind: _Does(
        rows=kind not in (Kind.COMMIT, Kind.RESULTS_BEGIN, Kind.RESULTS_END, Kind.EVICT_WINDOWS)
        and kind not in (Kind.EVICT, Kind.POLL, Kind.DRAIN),
        grows=kind in (Kind.EXTEND, Kind.RESERVE),
        extends=kind is Kind.EXTEND,
        ends=kind in (Kind.FINISH, Kind.ABORT, Kind.RETRACT),
        publishes=kind in (Kind.CHECKPOINT, Kind.FINISH),
        commits=kind is Kind.COMMIT,
        admits=kind is Kind.ADMIT,
        of_requests=kind is not Kind.EVICT,
    )
    for kind in Kind
}


class Probe:
    """Watches `engine.allocators()` for `ledger`, which it limits to what the engine observes.

    `content`: off, sample or full (stress.content); `bytes_per_token`: of what it stamps, with full. `closely`: one
    request in so many is watched closely (its window, locks, keys, content, live pages), one store in so many, and
    after one operation in so many the mapping is read again.
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
        tells_clock: bool = False,
        also: frozenset[str] = frozenset(),
    ):
        told = engine.observes | {"offsets"} | also | ({"clock"} if tells_clock else set())
        ledger.limit_to(told - ({"content"} if content == "off" else set()))
        self.ledger = ledger
        self._closely = closely
        self.watch = Watch(engine.allocators(), engine.pools, engine.edges, ledger)
        self.watch.engine = engine
        self.watch.closely = closely
        linker = engine.linker() if "transfers" in engine.observes else None
        self.linker_watch = LinkerWatch(linker, self.watch, closely) if linker is not None else None
        self._tells_writes = "writes" in engine.observes
        self.requests = RequestWatch(engine, self.watch)
        self._engine = engine
        self._waits = self.watch.reader.waits
        self._reads_counts = "counts" in engine.observes
        self._asks_owners = "owners" in engine.observes
        self.rows = self._watch_rows() if "row_memory" in engine.observes else None
        self._tells_reads = "reads" in engine.observes
        self._tells_live = "live" in engine.observes and self.watch.edge is not None
        self.locks = (
            CacheWatch(engine.lock_keeper(), self.watch, closely) if "locks" in engine.observes else None
        )
        self._keys = (
            KeyWatch(engine, self.watch, self.watch.source.name) if "keys" in engine.observes else None
        )
        self.content = None
        if content != "off" and "content" in engine.observes:
            self.content = Content(
                engine,
                self.watch,
                self.linker_watch,
                every_slot=content == "full",
                bytes_per_token=bytes_per_token,
                closely=closely,
            )
        self._operation = Operation(0, Kind.POLL, 0, ())
        self._does = _DOES[Kind.POLL]
        self._events_before = 0
        self._told: dict[str, tuple] = {}

    def _watch_rows(self) -> RowWatch:
        named = self.watch.edge.target
        shape = next(shape for shape in self._engine.pools if shape.name == named)
        return RowWatch(self._engine.row_keeper(), shape, self.watch)

    def open(self, spec: RequestSpec) -> None:
        """The engine knows a request from now on."""
        for told in (self._keys, self.content):
            if told is not None:
                told.open(spec)

    def close(self, rid: int) -> None:
        """The engine has forgotten a request."""
        for told in (self._keys, self.content):
            if told is not None:
                told.close(rid)

    def begin(self, operation: Operation) -> None:
        """The engine is about to be asked for `operation`."""
        number, kind, at_us, rows, _ = self._operation = operation
        does = self._does = _DOES[kind]
        watch = self.watch
        rid = rows[0][0] if len(rows) == 1 and does.of_requests else -1
        watch.begin(Cause(number, kind._value_, rid, ""), at_us)
        if does.commits and self._tells_reads:
            self.requests.tell_reads([row for row in rows if not row[0] % self._closely])
        if self.content is not None:
            if does.commits:
                self.content.before_pass(rows)
            elif does.publishes:
                self.content.before_publication(rows)
        self._events_before = watch.events

    def end(self, answer: tuple[int, ...] | None = None) -> None:
        """The engine has answered (see Operation; None: nothing), or raised."""
        watch, does = self.watch, self._does
        number, _, at_us, rows, _ = self._operation
        if does.rows or watch.events != self._events_before:
            watch.take_cause()
        if does.rows and (watch.source_lent or not does.grows):
            self.requests.tell_tables(rows)
        raises = sys.exc_info()[0] is not None
        if does.commits and self.rows is not None and not raises:
            for rid, accepted in rows:
                self.rows.tell_pass(rid, self._engine.row_pass(rid, accepted))
        if self._tells_writes:
            if does.commits:
                self.requests.tell_writes(rows)
            elif does.admits:
                self.requests.admitted(rows)
        if does.publishes and not rows[0][0] % self._closely:
            self._tell_published(rows[0][0], raises)
        if self.content is not None and not (raises or watch.raised):
            if does.commits:
                self.content.after_pass(rows)
            elif does.admits and answer:
                self.content.after_admission(rows, answer[0])
        if does.rows or watch.moved or (not does.commits and watch.events != self._events_before):
            self._tell_counts(raised=raises or watch.raised)
        if does.extends and answer == REFUSED and self._reads_counts:
            self.requests.tell_refused(rows)
        if does.ends and self._asks_owners:
            how = "raised" if raises or watch.raised else "end"
            for rid, _ in rows:
                kept = np.array(self._engine.kept_of(rid), dtype=np.int64)
                watch.tell(_ENDED, watch.source.name, kept, None, how)
        if not self._waits:
            self.ledger.settle(number, at_us)

    def settle(self) -> None:
        """On a GPU: the step's copies have landed, and what they say is checked. On a CPU nothing is left to do."""
        if self._waits:
            self.watch.land()
            self.ledger.settle(self._operation.number, self._operation.at_us)

    def clock(self, waiting: int, oldest_us: int, running: int, transfers: int, overdue_us: int) -> None:
        """How work goes on, once an exchange; see EventKind.CLOCK."""
        now = np.array((waiting, oldest_us, running, transfers, overdue_us), dtype=np.int64)
        self.watch.call += 1
        self.watch.tell(EventKind.CLOCK, self.watch.source.name, now, None, "exchange")
        self.settle()

    def sweep(self) -> None:
        """Reads free lists, mapping, cache and counters whole. Between operations."""
        watch, engine = self.watch, self._engine
        source = watch.source.name
        watch.take_cause()
        watch.call += 1
        if "cache" in engine.observes:
            cached = np.array(engine.cached_pages(), dtype=np.int64)
            watch.tell(EventKind.CACHED, source, cached, None, "sweep")
            if self.content is not None:
                self.content.sweep(cached)
        if self._tells_live:
            live = engine.cached_live()
            watch.tell(EventKind.LIVE, watch.edge.target, live, None, "sweep")
            if self.content is not None:
                self.content.sweep_window(live)
        for pool in watch.pools:
            free = watch.reader.slots(pool.target.get_all_free_pages())
            watch.tell(EventKind.FREE_LIST, pool.name, free, None, "sweep")
        if watch.edge is not None:
            shape = watch.source.shape
            end = shape.first_page + shape.pages
            pages = watch.reader.between(shape.first_page, end, watch.mapping.device)
            watch.tell(EventKind.MAP, watch.edge.target, pages, watch.entries.of(pages), "sweep")
        if self._reads_counts:
            for name, counts in engine.counts().items():
                watch.tell(_COUNTS, name, list(counts), None, "sweep")
        self._settle_sweep()

    def quiesce(self) -> None:
        """After a drain: a sweep, and what is still locked, pinned, loading, offloading or running."""
        self.sweep()
        left = np.array(self._engine.leftover(), dtype=np.int64)
        self.watch.tell(EventKind.LEFTOVER, self.watch.source.name, left, None, "quiesce")
        self._settle_sweep()

    def _settle_sweep(self) -> None:
        if not self._waits:
            self.ledger.settle(self._operation.number, self._operation.at_us)

    def _tell_published(self, rid: int, raises: bool) -> None:
        """What the cache says of the path that was published: which pages are live, and by which keys it is found."""
        watch = self.watch
        if self._tells_live and not raises:
            watch.tell(EventKind.LIVE, watch.edge.target, self._engine.published_live(), None, "publish")
        if self._keys is not None and not (raises or watch.raised):
            self._keys.published(rid)

    def _tell_counts(self, *, raised: bool) -> None:
        """Counts that have changed; those of the source pool, whose pages have owners, also where pages have moved."""
        watch = self.watch
        method = "raised" if raised else "end"
        moved = watch.moved or raised
        watch.moved = False
        known = self._engine.counts() if self._reads_counts else {}
        if known == self._told and known and not moved:
            return
        for pool in watch.pools:
            counts = known.get(pool.name) or (pool.shape.pages, pool.free_pages())
            if self._told.get(pool.name) == counts and not (moved and pool is watch.source):
                continue
            self._told[pool.name] = counts
            if raised or self._waits or not self.ledger.take_counts(pool.name, counts, watch.cause):
                watch.tell(_COUNTS, pool.name, list(counts), None, method)
