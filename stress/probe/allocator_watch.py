"""Wraps an allocator's methods, by name and on the instance, and tells the ledger what crosses its border.

Fits a single paged pool, and a hybrid of two (`full_attn_allocator`, `swa_attn_allocator`,
`full_to_swa_index_mapping`), ours or SGLang's. Changes nothing that the target does and keeps no view of its
buffers; an exception of the target passes through after what was seen has been told. What a free *meant* is told
before it runs (meaning.py); what *came back* is read off the free list's growth. Calls inside a watched call are
part of it: they share its number.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from stress.check.event import ALL_OBSERVATIONS, ALL_POOLS, EdgeShape, EventKind, PoolShape
from stress.check.shadow import Ledger
from stress.probe.capture import Column, DeviceReader, HostReader, reader_for
from stress.probe.journal import Journal
from stress.probe.lent_pages import PageStarts
from stress.probe.map_entries import MapEntries
from stress.probe.meaning import SEGMENT_FREES, SET_FREES, Meaning
from stress.probe.watched_pool import WatchedPool

_LENDS = ("alloc", "alloc_extend", "alloc_decode")
_MAP_WRITES = ("set_full_to_swa_mapping", "clear_full_to_swa_mapping")
_NONE = np.empty(0, dtype=np.int64)
# By themselves: up to Python 3.11 a member is looked up on its class at the price of a call.
_LEND, _RETURN = EventKind.LEND, EventKind.RETURN
_GROUP_BEGIN, _GROUP_END = EventKind.GROUP_BEGIN, EventKind.GROUP_END


class Watch(Journal):
    """Watches one allocator; `entries` reads its mapping. Without an engine: `begin` and `end` around operations."""

    def __init__(
        self,
        allocator,
        pools: tuple[PoolShape, ...],
        edges: tuple[EdgeShape, ...],
        ledger: Ledger,
        reader: HostReader | DeviceReader | None = None,
    ):
        super().__init__(ledger, reader or reader_for(getattr(allocator, "device", "cpu")))
        self.allocator = allocator
        self.touched: list[Column] = []  # source pages whose entries the call may write
        self.group_touched: list[Column] | None = None  # the same, of the group that is open; None: none is
        self.lent = False  # a pool lent pages in the outermost call at hand
        self._depth = 0
        self._starts = PageStarts()
        self._wrapped: list[tuple[object, str]] = []
        hybrid = hasattr(allocator, "full_attn_allocator")
        targets = (allocator.full_attn_allocator, allocator.swa_attn_allocator) if hybrid else (allocator,)
        self.pools = [WatchedPool(shape, target) for shape, target in zip(pools, targets, strict=False)]
        self.source = self.pools[0]
        self.edge = edges[0] if edges and hybrid else None
        self._meaning = Meaning(self)
        self.entries = MapEntries(self)
        if self.reader.waits:
            ledger.limit_to(ALL_OBSERVATIONS - {"offsets"})
        for pool in self.pools:
            self._wrap_pool(pool, tells_groups=not hybrid)
        if hybrid:
            self._wrap_hybrid()

    def end(self) -> None:
        """The operation is over: the free counts are told and, on a CPU, everything is checked."""
        for pool in self.pools:
            self.tell(EventKind.COUNTS, pool.name, [pool.shape.pages, pool.free_pages()], None, "end")
        if not self.reader.waits:
            self.ledger.settle(self.operation.operation, self.now_us)

    def unwatch(self) -> None:
        """Takes the wrappers off; the target is as it was."""
        for owner, name in self._wrapped:
            delattr(owner, name)
        self._wrapped = []

    def free_list(self, pool: WatchedPool) -> Column:
        """The ids on a pool's free list, in its order."""
        return self.reader.slots(pool.target.get_all_free_pages())

    @property
    def mapping(self):
        """The target's mapping tensor, asked for anew each time: the target may replace it."""
        return self.allocator.full_to_swa_index_mapping

    def _wrap(self, owner, name: str, make: Callable[[str, Callable], Callable]) -> None:
        inner = getattr(owner, name, None)
        if inner is not None:
            setattr(owner, name, make(name, inner))
            self._wrapped.append((owner, name))

    def _wrap_pool(self, pool: WatchedPool, tells_groups: bool) -> None:
        for name in _LENDS:
            self._wrap(pool.target, name, lambda name, inner: self._lending(pool, name, inner))
        for name in ("free", "free_segment", "free_page_ids", "free_group_begin", "free_group_end"):
            tells = tells_groups and name.startswith("free_group")
            # A group that only opens asks nothing back; of a hybrid's its own method tells it.
            if tells or name != "free_group_begin":
                self._wrap(pool.target, name, lambda n, inner, t=tells: self._freeing(pool, n, inner, t))

    def _wrap_hybrid(self) -> None:
        for name in _LENDS:
            self._wrap(self.allocator, name, lambda name, inner: self._outer(name, inner, None))
        for name in (*SET_FREES, *SEGMENT_FREES):
            self._wrap(self.allocator, name, lambda n, inner: self._outer(n, inner, self._meaning.of_free))
        if self.edge is not None:
            for name in _MAP_WRITES:
                self._wrap(self.allocator, name, lambda n, i: self._outer(n, i, self._meaning.of_map_write))
        for name in ("free_group_begin", "free_group_end"):
            self._wrap(self.allocator, name, self._grouping)

    def _outer(self, name: str, inner: Callable, before: Callable | None) -> Callable:
        def call(*args, **kwargs):
            self._depth += 1
            if self._depth == 1:
                self._enter()
                if before is not None:
                    before(name, args, kwargs)
            try:
                return inner(*args, **kwargs)
            except BaseException:
                self._raised()
                raise
            finally:
                self._depth -= 1
                if not self._depth and (self.lent or self.touched):
                    self._over(name)

        return call

    def _lending(self, pool: WatchedPool, name: str, inner: Callable) -> Callable:
        def call(*args, **kwargs):
            self._depth += 1
            if self._depth == 1:
                self._enter()
            try:
                slots = inner(*args, **kwargs)
                if slots is not None:
                    self._tell_lent(pool, name, slots, args, kwargs)
                return slots
            except BaseException:
                self._raised()
                raise
            finally:
                self._depth -= 1
                if not self._depth and (self.lent or self.touched):
                    self._over(name)

        return call

    def _freeing(self, pool: WatchedPool, name: str, inner: Callable, tells_group: bool) -> Callable:
        def call(*args, **kwargs):
            if pool.freeing:
                return inner(*args, **kwargs)  # part of a free that is watched
            self._depth += 1
            if self._depth == 1:
                self._enter()
                if args or kwargs:
                    self._meaning.of_pool_free(pool, name, args, kwargs)
            before = pool.free_pages()
            pool.freeing = True
            try:
                result = inner(*args, **kwargs)
                if tells_group and name == "free_group_begin":
                    self.tell(_GROUP_BEGIN, pool.name, _NONE, None, name)
                return result
            except BaseException:
                self._raised()
                raise
            finally:
                pool.freeing = False
                self._tell_returned(pool, name, pool.free_pages() - before)
                if tells_group and name == "free_group_end":
                    self.tell(_GROUP_END, pool.name, _NONE, None, name)
                self._depth -= 1
                if not self._depth and (self.lent or self.touched):
                    self._over(name)

        return call

    def _grouping(self, name: str, inner: Callable) -> Callable:
        def call(*args, **kwargs):
            self._depth += 1
            if self._depth == 1:
                self._enter()
            try:
                result = inner(*args, **kwargs)
                if name == "free_group_begin":
                    self.tell(_GROUP_BEGIN, ALL_POOLS, _NONE, None, name)
                    self.group_touched = self.group_touched or []
                return result
            except BaseException:
                self._raised()
                raise
            finally:
                if name == "free_group_end":
                    # Told also when the target's own assertion fires here: it has closed the group by then.
                    self.tell(_GROUP_END, ALL_POOLS, _NONE, None, name)
                    self.touched, self.group_touched = self.group_touched or [], None
                self._depth -= 1
                if not self._depth and (self.lent or self.touched):
                    self._over(name)

        return call

    def _enter(self) -> None:
        """The outermost call begins: it gets a number."""
        self.call += 1
        self._starts.forget()
        if self._step != self.engine.step:
            self.take_cause()

    def _raised(self) -> None:
        """An exception leaves a watched call; one that the target catches itself counts for nothing."""
        self.raised |= self._depth == 1

    def _over(self, method: str) -> None:
        """The outermost call has lent pages, or may have written the mapping."""
        if self.lent:
            self.lent = False
            if self.source.lent:
                self._meaning.of_lends(method)
            for pool in self.pools:
                pool.lent = []
        if self.touched:
            touched, self.touched = self.touched, []
            if not self.operation.operation % self.closely or method == "free_group_end":
                self.entries.tell(self.reader.join(touched), method)

    def _tell_lent(self, pool: WatchedPool, name: str, slots, args, kwargs) -> None:
        pages = self.reader.pages(slots, self._starts.of(pool.page_size, name, args, kwargs), pool.page_size)
        if len(pages):
            pool.lent.append(pages)
            self.lent = True
            self.source_lent |= pool is self.source
            self.tell(_LEND, pool.name, pages, None, name)
            if self.on_lend is not None:
                self.on_lend(pool.name, pages)

    def _tell_returned(self, pool: WatchedPool, name: str, growth: int) -> None:
        if growth > 0:
            pages = self.reader.pages(pool.freed_to(growth), slice(growth), 1)
            self.tell(_RETURN, pool.name, pages, None, name)


def watch(allocator, pools: tuple[PoolShape, ...], edges: tuple[EdgeShape, ...], ledger: Ledger) -> Watch:
    """Watches any allocator with these method names, without an engine: a loop, a test, real SGLang."""
    return Watch(allocator, pools, edges, ledger)
