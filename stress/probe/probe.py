"""The probe of a rank: tells the ledger what an engine's allocators do, operation by operation.

`begin(operation)` and `end()` go around every verb, also one that raises. After an operation that can change a
request's row the probe reads its table, and after every one the free counts. `sweep()` reads everything that can be
read, O(pool); `quiesce()` does so after a drain. On a GPU the ids wait on the device's own copies until `settle()`,
which the caller calls once a step, after a synchronize that the step has anyway.
"""

from __future__ import annotations

import numpy as np

from stress.check.event import Cause, EventKind
from stress.check.shadow import Ledger
from stress.engine.contract import Engine
from stress.operation import Kind, Operation
from stress.probe.watch import Watch

_ROW_KINDS = frozenset(
    {Kind.ADMIT, Kind.EXTEND, Kind.RESERVE, Kind.CHECKPOINT, Kind.FINISH, Kind.ABORT, Kind.RETRACT}
)
_GROWING_KINDS = frozenset({Kind.EXTEND, Kind.RESERVE})
_NONE = np.empty(0, dtype=np.int64)


class Probe:
    """Watches `engine.allocators()` for `ledger`, which it limits to what the engine observes."""

    def __init__(self, engine: Engine, ledger: Ledger):
        ledger.limit_to(engine.observes)
        self.ledger = ledger
        self._engine = engine
        self._watch = Watch(engine.allocators(), engine.pools, engine.edges, ledger)
        self._watch.step = lambda: engine.step
        self._waits = self._watch.reader.waits
        self._operation = Operation(0, Kind.POLL, 0, ())
        self._tables: dict[int, np.ndarray] = {}
        self._available: dict[str, int] = {}
        self._settled_at = (0, 0)

    def begin(self, operation: Operation) -> None:
        """The engine is about to be asked for `operation`."""
        self._operation = operation
        rows = operation.rows
        rid = rows[0][0] if len(rows) == 1 and operation.kind is not Kind.EVICT else -1
        self._watch.begin(Cause(operation.number, operation.kind.value, rid, ""), operation.at_us)

    def end(self) -> None:
        """The engine has answered, or raised."""
        operation = self._operation
        self._watch.take_cause()
        if operation.kind in _ROW_KINDS and (operation.kind not in _GROWING_KINDS or self._watch.source_lent):
            for rid, _ in operation.rows:
                self._tell_table(rid)
        self._watch.source_lent = False
        for pool in self._watch.pools:
            self._tell_available(pool)
        if not self._waits:
            self.ledger.settle(operation.number, operation.at_us)

    def settle(self) -> None:
        """On a GPU: the step's copies have landed, and what they say is checked. On a CPU there is nothing left."""
        if self._waits:
            self._watch.land()
            self.ledger.settle(self._operation.number, self._operation.at_us)

    def sweep(self) -> None:
        """Reads free lists, mappings, cache and counters whole."""
        watch, engine = self._watch, self._engine
        watch.take_cause()
        watch.call += 1
        if "cache" in engine.observes:
            watch.tell(EventKind.CACHED, watch.pools[0].name, np.array(engine.cached_pages(), dtype=np.int64))
        for pool in watch.pools:
            free = watch.read(pool.target.get_all_free_pages())
            watch.tell(EventKind.FREE_LIST, pool.name, free, None, "sweep")
        if watch.edge is not None:
            shape = engine.pools[0]
            pages = watch.read_pages(shape.first_page, shape.first_page + shape.pages)
            watch.tell(EventKind.MAP, watch.edge.target, pages, watch.entries_of(pages), "sweep")
        for name, counts in engine.counts().items():
            watch.tell(EventKind.COUNTS, name, np.array(counts, dtype=np.int64), None, "sweep")
        self._finish_sweep()

    def quiesce(self) -> None:
        """After a drain: a sweep, and what is still locked, pinned, loading, offloading or running."""
        self.sweep()
        left = np.array(self._engine.leftover(), dtype=np.int64)
        self._watch.tell(EventKind.LEFTOVER, self._watch.pools[0].name, left, None, "quiesce")
        self._finish_sweep()

    def _finish_sweep(self) -> None:
        if not self._waits:
            self.ledger.settle(self._operation.number, self._operation.at_us)

    def _tell_table(self, rid: int) -> None:
        table = self._engine.table(rid)
        known = self._tables.get(rid, _NONE)
        if len(table) == len(known) and np.array_equal(table, known):
            return
        table = np.array(table, dtype=np.int64)
        if len(table):
            self._tables[rid] = table
        else:
            del self._tables[rid]
        watch = self._watch
        cause = watch.cause
        watch.cause = cause._replace(rid=rid)
        watch.tell(EventKind.HOLD, watch.pools[0].name, table)
        watch.cause = cause

    def _tell_available(self, pool) -> None:
        available = pool.free_pages()
        if self._available.get(pool.name) != available:
            self._available[pool.name] = available
            counts = np.array([pool.shape.pages, available], dtype=np.int64)
            self._watch.tell(EventKind.COUNTS, pool.name, counts, None, "end")
