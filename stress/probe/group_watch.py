"""What single requests hold, read and write where the layers of a model have a table a group: as RequestWatch does.

Told are, for each group by its name, the table when it has changed, what a forward pass reads of it, and which of its
pages a pass has written to their ends. A hole in a table is the null page. Shows nothing to the engine.
"""

from __future__ import annotations

import numpy as np

from stress.check.event import EventKind
from stress.engine.groups import GroupedEngine
from stress.operation import Rows
from stress.probe.block_watch import BlockWatch

_ID_BYTES = 8
_HOLD, _WRITTEN, _READ = EventKind.HOLD, EventKind.WRITTEN, EventKind.READ


class GroupWatch:
    """Tells through `watch`, in pages of its one pool."""

    def __init__(self, engine: GroupedEngine, watch: BlockWatch) -> None:
        self._engine = engine
        self._watch = watch
        self._tables: dict[tuple[int, str], bytes] = {}
        self._committed: dict[int, int] = {}  # request -> tokens whose slots are written

    def tell_tables(self, rows: Rows) -> None:
        """Of the requests of these rows, the tables that have changed since they were told last."""
        for rid in dict.fromkeys([rid for rid, _ in rows] + self._engine.changed):
            for group in self._engine.groups:
                known = np.asarray(self._engine.group_table(rid, group.name), dtype=np.int64).tobytes()
                before = self._tables.get((rid, group.name), b"")
                if known == before:
                    continue
                same = len(before) // _ID_BYTES if known.startswith(before) else -1
                if known:
                    self._tables[rid, group.name] = known
                else:
                    del self._tables[rid, group.name]
                pages = np.frombuffer(known, dtype=np.int64)
                self._tell_of(rid, _HOLD, pages, group.name, same)
        self._engine.changed.clear()

    def holding(self) -> set[int]:
        """Requests whose tables were not empty when they were told last."""
        return {rid for rid, _ in self._tables}

    def close(self, rid: int) -> None:
        """A request is gone."""
        self._committed.pop(rid, None)

    def admitted(self, rows: Rows) -> None:
        """What a request is given when it is admitted is written already."""
        for rid, _ in rows:
            self._committed[rid] = self._engine.committed(rid)

    def tell_writes(self, rows: Rows) -> None:
        """Pages whose last slot a pass has written, by group."""
        for rid, accepted in rows:
            start = self._committed.get(rid, 0)
            end = self._committed[rid] = start + accepted
            self._tell_written(rid, start, end)

    def _tell_written(self, rid: int, start: int, end: int) -> None:
        for group in self._engine.groups:
            first, last = start // group.page_size, end // group.page_size
            if first < last:
                table = self._engine.group_table(rid, group.name, first, last)
                pages = [page for page in table if page != self._watch.source.shape.null_page]
                if pages:
                    self._tell_of(rid, _WRITTEN, pages, group.name)

    def tell_reads(self, rows: Rows, closely: int) -> None:
        """What the pass that is about to be committed read of each group, of one request in `closely`."""
        for rid, _ in rows:
            if rid % closely:
                continue
            for group in self._engine.groups:
                tokens = self._engine.committed(rid)
                first, last = group.reads_from(tokens) // group.page_size, -(-tokens // group.page_size)
                if first < last:
                    pages = np.array(self._engine.group_table(rid, group.name, first, last), dtype=np.int64)
                    whole = "" if tokens % group.page_size else "whole"
                    self._tell_of(rid, _READ, pages, group.name, first, whole)

    def tell_refused(self, rows: Rows) -> None:
        """What was needed in all groups, a page a row more than the slots, and what could be had."""
        needed = sum(self._engine.pages_short(rid, upto) + 1 for rid, upto in rows)
        rooms = [part for counts in self._engine.counts().values() for part in counts[1:3]]
        told = np.array((needed, *rooms), dtype=np.int64)
        self._watch.tell(EventKind.REFUSED, self._watch.source.name, told, None, "extend")

    def _tell_of(
        self,
        rid: int,
        kind: EventKind,
        pages: np.ndarray | list[int],
        group: str,
        token: int = -1,
        method: str = "",
    ) -> None:
        watch = self._watch
        cause = watch.cause
        watch.cause = cause.of(rid)
        watch.tell(kind, watch.source.name, pages, None, method, token=token, table=group)
        watch.cause = cause
