"""Wraps what lends rows of memory, a ring's, by method name and on the instance: pages lent and returned by the row.

A row is asked back and comes back in one call. What a forward pass wrote and read there the engine tells (`RowPass`);
the ledger holds it against the lends seen here.
"""

from __future__ import annotations

import numpy as np

from stress.check.event import EventKind, PoolShape
from stress.engine.contract import RowPass
from stress.probe.allocator_watch import Watch
from stress.probe.watched_pool import WatchedPool


class RowWatch:
    """`keeper`: see `Engine.row_keeper`. Its pool is among those that `watch` counts and sweeps from now on."""

    def __init__(self, keeper, shape: PoolShape, watch: Watch) -> None:
        self._keeper, self._watch, self._pool = keeper, watch, shape.name
        watch.pools.append(WatchedPool(shape, keeper))
        keeper.acquire = self._lending(keeper.acquire)
        keeper.release = self._returning(keeper.release)

    def tell_pass(self, rid: int, row_pass: RowPass) -> None:
        """What a forward pass of the request did."""
        watch, cause = self._watch, self._watch.cause
        watch.cause = cause.of(rid)
        watch.tell(EventKind.ROW_WRITTEN, self._pool, row_pass.written, row_pass.written_as, "forward")
        if len(row_pass.read):
            watch.tell(EventKind.ROW_READ, self._pool, row_pass.read, row_pass.read_as, "forward")
        watch.cause = cause

    def _lending(self, inner):
        def acquire(*args, **kwargs):
            lent = inner(*args, **kwargs)
            self._call()
            self._watch.tell(EventKind.LEND, self._pool, self._pages(lent), None, "acquire")
            if self._watch.on_lend is not None:
                self._watch.on_lend(self._pool, self._pages(lent))
            return lent

        return acquire

    def _returning(self, inner):
        def release(lent):
            self._call()
            self._watch.tell(EventKind.INTENT, self._pool, self._pages(lent), None, "release")
            inner(lent)
            self._watch.tell(EventKind.RETURN, self._pool, self._pages(lent), None, "release")

        return release

    def _pages(self, lent) -> np.ndarray:
        return self._keeper.pages_of(lent.row)

    def _call(self) -> None:
        self._watch.call += 1
        self._watch.take_cause()
