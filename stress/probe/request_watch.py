"""What single requests hold, read and write: read off the engine for the ledger, under the request's own id.

The table of a request is told when it has changed since it was last told; what was told last is what a commit is taken
to write to. Whoever calls knows when: the table after an operation that can change a row, what was given after an
admission, writes after a commit, reads before it, a refusal after an extend that got no slots. Shows nothing to the
engine and keeps no view of it.
"""

from __future__ import annotations

import numpy as np

from stress.check.event import EventKind
from stress.engine.contract import Engine
from stress.operation import Rows
from stress.probe.allocator_watch import Watch
from stress.probe.capture import FEW

_ID_BYTES = 8
# By themselves: up to Python 3.11 a member is looked up on its class at the price of a call.
_HOLD, _WRITTEN = EventKind.HOLD, EventKind.WRITTEN
_NO_TABLE = b"", np.empty(0, dtype=np.int64)


class RequestWatch:
    """Tells through `watch`, in pages of its source pool."""

    def __init__(self, engine: Engine, watch: Watch) -> None:
        self._engine = engine
        self._watch = watch
        # As bytes, by which a table of 2,000 pages is copied and compared in 1 us, and as the pages in them.
        self._tables: dict[int, tuple[bytes, np.ndarray]] = {}
        self._committed: dict[int, int] = {}  # request -> tokens whose slots are written
        self._admitted: set[int] = set()  # requests that have not committed anything yet

    def tell_tables(self, rows: Rows) -> None:
        """Of the requests of these rows, those that have changed since they were told last."""
        tables = self._tables
        for rid, _ in rows:
            known = np.asarray(self._engine.table(rid), dtype=np.int64).tobytes()
            before, _ = tables.get(rid, _NO_TABLE)
            if known == before:
                continue
            same = len(before) // _ID_BYTES if known.startswith(before) else -1
            pages = np.frombuffer(known, dtype=np.int64)
            if known:
                tables[rid] = known, pages
            else:
                del tables[rid]
            self._tell_of(rid, _HOLD, pages, same)

    def close(self, rid: int) -> None:
        """A request is gone."""
        self._committed.pop(rid, None)
        self._admitted.discard(rid)

    def admitted(self, rows: Rows) -> None:
        """What a request is given when it is admitted is whole pages, and written."""
        for rid, _ in rows:
            self._committed[rid] = len(self._known_table(rid)) * self._watch.source.page_size
            self._admitted.add(rid)

    def tell_writes(self, rows: Rows) -> None:
        """Pages whose last slot a commit has written; none are told once, when it is the request's first commit."""
        page_size, committed, admitted = self._watch.source.page_size, self._committed, self._admitted
        for rid, accepted in rows:
            start = committed.get(rid, 0)
            end = committed[rid] = start + accepted
            first, last = start // page_size, end // page_size
            if first == last and rid not in admitted:
                continue
            admitted.discard(rid)
            pages = self._known_table(rid)[first:last]
            few = last - first <= FEW and not self._watch.reader.waits
            self._tell_of(rid, _WRITTEN, pages.tolist() if few else pages.copy())

    def _known_table(self, rid: int) -> np.ndarray:
        return self._tables.get(rid, _NO_TABLE)[1]

    def _tell_of(self, rid: int, kind: EventKind, pages: np.ndarray | list[int], token: int = -1) -> None:
        watch = self._watch
        cause = watch.cause
        if cause.rid != rid:
            watch.cause = cause.of(rid)
        watch.tell(kind, watch.source.name, pages, None, "", token=token)
        watch.cause = cause

    def tell_reads(self, rows: Rows, closely: int) -> None:
        """A commit stands for the forward pass that wrote what it commits: what that pass read of each window, of one
        request in `closely`."""
        watch, engine = self._watch, self._engine
        cause = watch.cause
        for rid, _ in rows:
            if rid % closely:
                continue
            read = engine.window_read(rid)
            if len(read.pages):
                watch.cause = cause.of(rid)
                watch.tell(EventKind.READ, read.pool, np.array(read.pages), None, "forward", token=read.first)
        watch.cause = cause

    def tell_refused(self, rows: Rows) -> None:
        """What was needed, a page a row more than the slots (upstream estimates so), and what could be had."""
        engine, size = self._engine, self._watch.source.page_size
        needed = 0
        for rid, upto in rows:
            needed += max(0, -(-upto // size) - len(engine.table(rid))) + 1
        rooms = [part for counts in engine.counts().values() for part in counts[1:3]]
        told = np.array((needed, *rooms), dtype=np.int64)
        self._watch.tell(EventKind.REFUSED, self._watch.source.name, told, None, "extend")
