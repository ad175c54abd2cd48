"""Reads everything that can be read of an engine, O(pool), between operations: free lists, mapping, cache, counters."""

from __future__ import annotations

import numpy as np

from stress.check.event import EventKind
from stress.content import Content
from stress.engine.contract import Engine
from stress.probe.allocator_watch import Watch


def tell_sweep(engine: Engine, watch: Watch, content: Content | None) -> None:
    """Tells what is there through `watch`; `content` compares the cache's pages. Settles nothing."""
    watch.take_cause()
    watch.call += 1
    if "cache" in engine.observes:
        cached = np.array(engine.cached_pages(), dtype=np.int64)
        watch.tell(EventKind.CACHED, watch.source.name, cached, None, "sweep")
        if content is not None:
            content.sweep(cached)
    if "live" in engine.observes and watch.edge is not None:
        live = engine.cached_live()
        watch.tell(EventKind.LIVE, watch.edge.target, live, None, "sweep")
        if content is not None:
            content.sweep_window(live)
    for pool in watch.pools:
        watch.tell(EventKind.FREE_LIST, pool.name, watch.free_list(pool), None, "sweep")
    if watch.edge is not None:
        shape = watch.source.shape
        end = shape.first_page + shape.pages
        pages = watch.reader.between(shape.first_page, end, watch.mapping.device)
        watch.tell(EventKind.MAP, watch.edge.target, pages, watch.entries.of(pages), "sweep")
    if "counts" in engine.observes:
        for name, counts in engine.counts().items():
            watch.tell(EventKind.COUNTS, name, list(counts), None, "sweep")


def tell_leftover(engine: Engine, watch: Watch) -> None:
    """After a drain: what is still locked, pinned, loading, offloading or running."""
    left = np.array(engine.leftover(), dtype=np.int64)
    watch.tell(EventKind.LEFTOVER, watch.source.name, left, None, "quiesce")
