"""Stands for the model: stamps what a forward pass or a load writes, and compares before anything reads it.

A commit stands for the forward pass that wrote what it commits. Before it the pass reads a request's window, through
the target's own mapping as an attention kernel would, and with `every_slot` its whole prefix from the first pool.
Compared besides: a hit at admission, a row as it is published, what an offload stores when it ends, and the cache's
pages in sweeps. What differs is told as CONTENT; on a device the comparison stays there, and its integers land with the
step's other copies.
What the store holds is a function of its keys; what an offload stored wrong is kept as an exception, on a host alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from stress.check.event import EventKind, PoolShape
from stress.content.arrays import Array, arrays_for
from stress.content.pass_writes import PassWrites
from stress.content.published import Published
from stress.content.span import Span, span_of, span_of_load
from stress.content.stamps import Difference, FullStamps, SampledStamps
from stress.content.store import StoreContent
from stress.engine.contract import Engine, RequestSpec
from stress.operation import Rows

if TYPE_CHECKING:  # the probe imports this module
    from stress.probe.allocator_watch import Watch
    from stress.probe.linker_watch import LinkerWatch, Moved


class Content:
    """`every_slot`: all slots instead of two a page; `bytes_per_token`: their size, with `every_slot`, 0: a stamp's.

    `closely`: of one request in so many it is compared what is read. What is written is stamped for all, but for what
    nobody reads (pass_writes.py).
    """

    def __init__(
        self,
        engine: Engine,
        watch: Watch,
        linker_watch: LinkerWatch | None,
        *,
        every_slot: bool = False,
        bytes_per_token: int = 0,
        closely: int = 1,
    ) -> None:
        self._engine = engine
        self._closely = closely
        self._watch = watch
        self._arrays = arrays = arrays_for(getattr(engine.allocators(), "device", "cpu"))

        def stamps_of(shape: PoolShape) -> FullStamps | SampledStamps:
            return FullStamps(shape, arrays, bytes_per_token) if every_slot else SampledStamps(shape, arrays)

        self._page_size = engine.page_size
        # A sample leaves the whole prefix of each pass to the row's publication.
        self._reads_rows = every_slot
        self._pool = stamps_of(watch.source.shape)
        target = watch.edge and watch.edge.target
        window = next((shape for shape in engine.pools if shape.name == target), None)
        owned = "row_memory" in engine.observes  # the window lives in memory of the request's row
        reads = "reads" in engine.observes and window is not None
        self._window = stamps_of(window) if reads and not owned else None
        self._rows = stamps_of(window) if owned else None
        self._passes = PassWrites(self._pool, self._window, watch, closely)
        stamps = [stamps for stamps in (self._pool, self._window, self._rows) if stamps is not None]
        self._stamps = {one.name: one for one in stamps}
        self._specs: dict[int, RequestSpec] = {}
        self._recorded: dict[int, int] = {}  # by request: pages of its row whose key and label are known
        self._published = Published(self._pool.pages, self._page_size)
        # A window is read through the mapping; None: known with the first forward pass.
        self._has_window: bool | None = None if self._window is not None else False
        self._store = StoreContent()
        self._named_by_key = "keys" in engine.observes
        self._linker = engine.linker() if linker_watch is not None else None
        if linker_watch is not None:
            linker_watch.on_ended = self._ended
        watch.on_lend = self._lent

    # What the probe tells

    def open(self, spec: RequestSpec) -> None:
        """A request is known from now on."""
        self._specs[spec.rid] = spec

    def close(self, rid: int) -> None:
        """A request is gone."""
        del self._specs[rid]
        self._recorded.pop(rid, None)

    def before_pass(self, rows: Rows) -> None:
        """The engine is about to commit: what the forward pass that stands for read is compared."""
        if self._has_window is None:
            pool = self._engine.window_read(rows[0][0]).pool
            self._has_window = pool == self._window.name
        for rid, _ in rows:
            if rid % self._closely:
                continue
            tokens = self._engine.committed(rid)
            if self._reads_rows:
                self._read(rid, "forward", tokens)
            self._read_window(rid, tokens)

    def after_pass(self, rows: Rows) -> None:
        """It has committed: what the pass wrote is stamped."""
        for rid, accepted in rows:
            hi = self._engine.committed(rid)
            lo = hi - accepted
            if hi > lo:
                table, keys = self._engine.table(rid), self._specs[rid].keys
                self._passes.write(rid, lo, hi, table, keys, windowed=self._has_window)
            if self._rows is not None:
                self._pass_in_row(rid, accepted, lo, hi)

    def before_publication(self, rows: Rows) -> None:
        """The engine is about to publish these rows."""
        for rid, _ in rows:
            self._publish(rid)

    def after_admission(self, rows: Rows, cached: int) -> None:
        """It has admitted a request with so many tokens out of the cache."""
        rid = rows[0][0]
        if cached and not rid % self._closely:
            self._read(rid, "hit", cached)
        self._recorded[rid] = cached // self._page_size

    def sweep(self, cached: np.ndarray) -> None:
        """The cache has these pages, int64[n]."""
        span = self._published.span(cached)
        if len(span.pages):
            self._tell(self._pool, self._pool.compare(span), "sweep")

    def sweep_window(self, live: np.ndarray) -> None:
        """The cache says that these pages of the first pool, int64[n], have a peer."""
        span = self._published.span(live)
        if len(span.pages) and self._window is not None:
            self._tell(self._window, self._window.compare(span, self._watch.mapping), "sweep")

    # The model

    def _lent(self, pool: str, pages: Array) -> None:
        stamps = self._stamps.get(pool)
        if stamps is not None:
            stamps.lend(pages)

    def _read(self, rid: int, method: str, tokens: int) -> None:
        """Compares the request's first `tokens` positions."""
        if tokens:
            span = self._span(rid, 0, tokens)
            self._tell(self._pool, self._pool.compare(span), method, rid)

    def _read_window(self, rid: int, tokens: int) -> None:
        """Compares what the request's next pass reads of its window, behind `tokens` positions."""
        if self._window is None or not self._has_window:
            return
        read = self._engine.window_read(rid)
        if not len(read.pages):
            return
        keys = self._specs[rid].keys[read.first : read.first + len(read.pages)]
        end = tokens - (read.first + len(read.pages) - 1) * self._page_size
        span = Span(np.asarray(read.pages), keys, 0, end, rid, read.first)
        self._tell(self._window, self._window.compare(span, self._watch.mapping), "forward", rid)

    def _pass_in_row(self, rid: int, accepted: int, lo: int, hi: int) -> None:
        """What the pass from `lo` to `hi` wrote to the row's own memory, and what its last position reads there."""
        done, keys, size = self._engine.row_pass(rid, accepted), self._specs[rid].keys, self._page_size
        if len(done.written):
            first = done.written_as[0]
            begin, end = max(0, lo - first * size), hi - done.written_as[-1] * size
            self._rows.write(Span(np.array(done.written), keys[done.written_as], begin, end, rid, first))
        if len(done.read):
            end = hi - done.read_as[-1] * size
            span = Span(np.array(done.read), keys[done.read_as], 0, end, rid, done.read_as[0])
            self._tell(self._rows, self._rows.compare(span), "forward", rid)

    def _publish(self, rid: int) -> None:
        tokens = self._engine.committed(rid)
        if not rid % self._closely:
            self._read(rid, "publish", tokens)
        known, whole = self._recorded.get(rid, 0), tokens // self._page_size
        if whole > known:
            self._recorded[rid] = whole
            self._published.record(self._span(rid, known * self._page_size, whole * self._page_size))

    def _span(self, rid: int, lo: int, hi: int) -> Span:
        return span_of(rid, self._engine.table(rid), self._specs[rid].keys, lo, hi, self._page_size)

    # The store

    def _ended(self, transfer: Moved) -> None:
        """A transfer has ended, and its pages are valid."""
        if transfer.kind == "load":
            self._load(transfer)
        else:
            self._offload(transfer)

    def _load(self, transfer: Moved) -> None:
        """The pages are filled with what the store holds under the keys."""
        rid, size = transfer.owner, self._page_size
        keys = None if rid not in self._specs else self._specs[rid].keys
        expected = span_of_load(transfer, self._engine.table(rid), keys, size, named=self._named_by_key)
        if expected is None:
            return
        held, wrong = self._store.content(transfer.keys, expected)
        self._pool.write(held)
        if not self._linker.skips_swa and self._window is not None:
            self._window.write(held, self._watch.mapping)
        if wrong:
            self._tell(self._pool, self._pool.compare(expected), "load", transfer.owner)

    def _offload(self, transfer: Moved) -> None:
        """The store takes over what the pages hold now."""
        keys = transfer.keys if self._named_by_key else self._published.keys(transfer.pages)
        span = self._published.span(transfer.pages, keys)
        difference = self._pool.compare(span)
        self._tell(self._pool, difference, "store")
        if not self._arrays.waits:
            found = keys if difference is None else self._pool.found(span)
            self._store.keep(transfer.keys, found != keys, found)

    # Telling

    def _tell(
        self, stamps: FullStamps | SampledStamps, difference: Difference | None, method: str, rid: int = -1
    ) -> None:
        if difference is None:
            return
        watch = self._watch
        cause = watch.cause
        watch.cause = cause.of(rid if rid >= 0 else cause.rid)
        watch.tell(EventKind.CONTENT, stamps.name, *difference, method)
        watch.cause = cause
