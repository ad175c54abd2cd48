"""Wraps an allocator's methods, by name and on the instance, and tells the ledger what crosses its border.

Fits a single paged pool, and a hybrid of two (`full_attn_allocator`, `swa_attn_allocator`,
`full_to_swa_index_mapping`), ours or SGLang's. Changes nothing that the target does and keeps no view of its buffers;
an exception of the target passes through after what was seen has been told. What a free *meant* is told before it
runs, by the probe's own arithmetic; what *came back* is read off the free list's growth. Calls inside a watched call
are part of it: they share its number.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from stress.check.event import Cause, EdgeShape, Event, EventKind, PoolShape
from stress.check.shadow import Ledger
from stress.probe.capture import Column, DeviceReader, HostReader, reader_for
from stress.probe.lent_pages import (
    host_lengths,
    page_starts_of_decode,
    page_starts_of_extend,
    segment_parts,
)

_LENDS = ("alloc", "alloc_extend", "alloc_decode")
_SET_FREES = ("free", "free_swa", "free_full")
_SEGMENT_FREES = ("free_segment", "free_swa_segment", "free_full_segment")


class WatchedPool:
    """A sub pool of the target and its name."""

    def __init__(self, shape: PoolShape, target):
        self.shape = shape
        self.name = shape.name
        self.page_size = shape.page_size
        self.target = target
        self.inside = False  # a free of this pool is running
        self.lent: list[Column] = []  # in the outermost call at hand

    def free_pages(self) -> int:
        """Length of the free list: a host number in every version of SGLang."""
        return self.target.available_size() // self.page_size

    def newest_free(self, count: int):
        """The pages that went on the free list last. With need_sort upstream stages them on a second list."""
        if getattr(self.target, "need_sort", False):
            for name in ("release_pages", "staged_pages"):
                staged = getattr(self.target, name, None)
                if staged is not None and len(staged) >= count:
                    return staged[:count]
        return self.target.get_all_free_pages()[:count]


class Watch:
    """Watches one allocator. `cause` is who asks at the moment, `now_us` the time of what happens."""

    def __init__(
        self,
        allocator,
        pools: tuple[PoolShape, ...],
        edges: tuple[EdgeShape, ...],
        ledger: Ledger,
        reader: HostReader | DeviceReader | None = None,
    ):
        self.ledger = ledger
        self.now_us = 0
        self.operation = Cause(0, "", -1, "")
        self.step: Callable[[], str] = str
        self.events = 0
        self.source_lent = False  # pages of the first pool were lent since this was last cleared
        self._allocator = allocator
        self.call = 0
        self._depth = 0
        self.cause = self.operation
        self._touched: list[Column] = []  # source pages whose entries the call may write
        self._group: list[Column] = []  # the same, of the group that is open
        self._grouped = False
        self._wrapped: list[tuple[object, str]] = []
        self._waiting: list[tuple] = []
        hybrid = hasattr(allocator, "full_attn_allocator")
        targets = (allocator.full_attn_allocator, allocator.swa_attn_allocator) if hybrid else (allocator,)
        self.pools = [WatchedPool(shape, target) for shape, target in zip(pools, targets, strict=False)]
        self._source = self.pools[0]
        self.edge = edges[0] if edges and hybrid else None
        self.reader = reader or reader_for(getattr(allocator, "device", "cpu"))
        for pool in self.pools:
            self._wrap_pool(pool, hybrid)
        if hybrid:
            self._wrap_hybrid(allocator)

    def unwatch(self) -> None:
        """Takes the wrappers off; the target is as it was."""
        for owner, name in self._wrapped:
            delattr(owner, name)
        self._wrapped = []

    # Telling

    def tell(self, kind, pool: str, pages: Column, peers: Column | None = None, method: str = "") -> None:
        """Journals an event under the present cause; on a CPU the ledger sees it now."""
        self.events += 1
        cause = self.cause
        if not self.reader.waits:
            self.ledger.observe(Event(kind, pool, pages, peers, cause, self.call, method, self.now_us))
            return
        send = self.reader.send
        copies = (send(pages), None if peers is None else send(peers))
        self._waiting.append((kind, pool, *copies, cause, self.call, method, self.now_us))

    def land(self) -> None:
        """Shows the ledger what waits for copies from the device. The caller has synchronised the stream."""
        waiting, self._waiting = self._waiting, []
        for kind, pool, pages, peers, cause, call, method, at_us in waiting:
            pages = self.reader.land(pages)
            peers = None if peers is None else self.reader.land(peers)
            if kind in (EventKind.INTENT, EventKind.BIND, EventKind.MAP):
                pages, peers = _distinct(pages, peers)
            self.ledger.observe(Event(kind, pool, pages, peers, cause, call, method, at_us))

    def take_cause(self) -> None:
        """The cause of what follows: the operation, and the engine's present word for the step."""
        step = self.step()
        if self.cause[:3] != self.operation[:3] or self.cause.step != step:
            self.cause = self.operation._replace(step=step)

    def begin(self, operation: Cause, now_us: int) -> None:
        """A new operation starts; its calls count from 1."""
        self.operation = self.cause = operation
        self.now_us = now_us
        self.call = 0

    def entries_of(self, pages: Column) -> Column:
        """Target pages that the mapping names at the first slots of source pages."""
        size = self._source.page_size
        return self.reader.entries(self._mapping, pages * size) // size

    def read_pages(self, first: int, end: int) -> Column:
        """Ids first .. end - 1, where the mapping is."""
        return self.reader.between(first, end, self._mapping.device)

    def read(self, tensor, where: slice | np.ndarray = slice(None)) -> Column:
        """A copy of ids in one of the target's tensors."""
        return self.reader.slots(tensor, where)

    @property
    def _mapping(self):
        return self._allocator.full_to_swa_index_mapping

    # Wrapping

    def _wrap(self, owner, name: str, make: Callable) -> None:
        inner = getattr(owner, name, None)
        if inner is None:
            return
        setattr(owner, name, make(inner))
        self._wrapped.append((owner, name))

    def _wrap_pool(self, pool: WatchedPool, in_hybrid: bool) -> None:
        for name in _LENDS:
            self._wrap(pool.target, name, lambda inner, name=name: self._lending(pool, name, inner))
        for name in ("free", "free_segment", "free_page_ids"):
            self._wrap(pool.target, name, lambda inner, name=name: self._freeing(pool, name, inner))
        for name, opens in (("free_group_begin", True), ("free_group_end", False)):
            tell = None if in_hybrid else opens
            self._wrap(
                pool.target, name, lambda inner, n=name, t=tell: self._freeing(pool, n, inner, group=t)
            )

    def _wrap_hybrid(self, allocator) -> None:
        for name in _LENDS:
            self._wrap(allocator, name, lambda inner, name=name: self._outer(name, inner, None))
        for name in (*_SET_FREES, *_SEGMENT_FREES):
            self._wrap(allocator, name, lambda inner, name=name: self._outer(name, inner, self._intend))
        if self.edge is not None:
            for name in ("set_full_to_swa_mapping", "clear_full_to_swa_mapping"):
                self._wrap(allocator, name, lambda inner, name=name: self._outer(name, inner, self._bound))
        self._wrap(
            allocator, "free_group_begin", lambda inner: self._grouping("free_group_begin", inner, True)
        )
        self._wrap(allocator, "free_group_end", lambda inner: self._grouping("free_group_end", inner, False))

    def _enter(self) -> bool:
        self._depth += 1
        if self._depth > 1:
            return False
        self.call += 1
        self.take_cause()
        return True

    def _leave(self, method: str) -> None:
        self._depth -= 1
        if self._depth:
            return
        if self._source.lent:
            self._bind_lent(method)
        for pool in self.pools:
            if pool.lent:
                pool.lent = []
        if self._touched:
            touched, self._touched = self._touched, []
            pages = self.reader.join(touched)
            self.tell(EventKind.MAP, self.edge.target, pages, self.entries_of(pages), method)
            self._sample_slots(pages, method)

    def _outer(self, name: str, inner: Callable, before: Callable | None) -> Callable:
        def call(*args, **kwargs):
            if self._enter() and before is not None:
                before(name, args, kwargs)
            try:
                return inner(*args, **kwargs)
            finally:
                self._leave(name)

        return call

    def _lending(self, pool: WatchedPool, name: str, inner: Callable) -> Callable:
        def call(*args, **kwargs):
            self._enter()
            try:
                slots = inner(*args, **kwargs)
                if slots is not None:
                    self._lent(pool, name, slots, args, kwargs)
                return slots
            finally:
                self._leave(name)

        return call

    def _freeing(self, pool: WatchedPool, name: str, inner: Callable, group: bool | None = None) -> Callable:
        def call(*args, **kwargs):
            if self._enter() and args:
                self._intend_pool(pool, name, args, kwargs)
            if pool.inside:
                try:
                    return inner(*args, **kwargs)
                finally:
                    self._leave(name)
            pool.inside = True
            before = pool.free_pages()
            try:
                result = inner(*args, **kwargs)
                if group is True:
                    self.tell(EventKind.GROUP_BEGIN, pool.name, _NONE, None, name)
                return result
            finally:
                pool.inside = False
                growth = pool.free_pages() - before
                if growth > 0:
                    pages = self.read(pool.newest_free(growth))
                    self.tell(EventKind.RETURN, pool.name, pages, None, name)
                if group is False:
                    self.tell(EventKind.GROUP_END, pool.name, _NONE, None, name)
                self._leave(name)

        return call

    def _grouping(self, name: str, inner: Callable, opens: bool) -> Callable:
        def call(*args, **kwargs):
            self._enter()
            try:
                result = inner(*args, **kwargs)
                if opens:
                    self._tell_group(EventKind.GROUP_BEGIN, name)
                return result
            finally:
                if not opens:
                    # Told also when the target's own assertion fires here: it has closed the group by then.
                    self._tell_group(EventKind.GROUP_END, name)
                    self._touched, self._group = self._group, []
                self._grouped = opens
                self._leave(name)

        return call

    def _tell_group(self, kind: EventKind, name: str) -> None:
        for pool in self.pools:
            self.tell(kind, pool.name, _NONE, None, name)

    # What calls mean

    def _lent(self, pool: WatchedPool, name: str, slots, args, kwargs) -> None:
        size = pool.page_size
        if name == "alloc":
            where = slice(None, None, size)
        elif name == "alloc_extend":
            prefix = kwargs["prefix_lens_cpu"] if "prefix_lens_cpu" in kwargs else args[1]
            seq = kwargs["seq_lens_cpu"] if "seq_lens_cpu" in kwargs else args[3]
            where = page_starts_of_extend(host_lengths(prefix), host_lengths(seq), size)
        else:
            seq = kwargs["seq_lens_cpu"] if "seq_lens_cpu" in kwargs else args[1]
            where = page_starts_of_decode(host_lengths(seq), size)
        pages = self.read(slots, where) // size
        if not len(pages):
            return
        pool.lent.append(pages)
        if pool is self._source:
            self.source_lent = True
        self.tell(EventKind.LEND, pool.name, pages, None, name)

    def _bind_lent(self, method: str) -> None:
        """Pages lent by one call belong together; if fewer came with peers, the last ones have them."""
        if self.edge is None:
            return
        full = self.reader.join(self._source.lent)
        peers = self.pools[1].lent
        if peers:
            peer = self.reader.join(peers)
            alone = len(full) - len(peer)
            if alone > 0:
                self.tell(
                    EventKind.BIND, self.edge.target, full[:alone], self._no_peers(full[:alone]), method
                )
            self.tell(EventKind.BIND, self.edge.target, full[max(alone, 0) :], peer[max(-alone, 0) :], method)
        else:
            self.tell(EventKind.BIND, self.edge.target, full, self._no_peers(full), method)
        self._touched.append(full)

    def _no_peers(self, pages: Column) -> Column:
        return pages * 0 + self.edge.no_peer

    def _intend(self, name: str, args, kwargs) -> None:
        """A free of the hybrid: what it asks back in each pool, before it runs."""
        indices = args[0] if args else kwargs["indices"]
        if not len(indices):
            return
        slots = self._representatives(name, indices, args, kwargs)
        pages = slots // self._source.page_size
        if self.edge is not None and not name.startswith("free_full"):
            peers = self.reader.entries(self._mapping, slots) // self._source.page_size
            self.tell(EventKind.INTENT, self.edge.target, pages, peers, name)
            self._touched.append(pages)
            if self._grouped:
                self._group.append(pages)
        if not name.startswith("free_swa"):
            self.tell(EventKind.INTENT, self._source.name, pages, None, name)

    def _intend_pool(self, pool: WatchedPool, name: str, args, kwargs) -> None:
        """A free of a sub pool, called directly."""
        indices = args[0]
        if not len(indices):
            return
        if name == "free_page_ids":
            pages = self.read(indices)
        else:
            pages = self._representatives(name, indices, args, kwargs) // pool.page_size
        self.tell(EventKind.INTENT, pool.name, pages, None, name)

    def _representatives(self, name: str, indices, args, kwargs) -> Column:
        """One slot a page: by position in a segment, the first named of each page in a set."""
        size = self._source.page_size
        if name in _SEGMENT_FREES:
            start = kwargs["start_pos"] if "start_pos" in kwargs else args[1]
            return self.reader.join([self.read(indices, part) for part in segment_parts(int(start), size)])
        slots = self.read(indices)
        if self.reader.waits:
            return slots
        return slots[np.sort(np.unique(slots // size, return_index=True)[1])]

    def _bound(self, name: str, args, kwargs) -> None:
        """The mapping is written directly: what whole pages shall map to from now on."""
        size = self._source.page_size
        named = list(args) + list(kwargs.values())
        slots = self.read(named[0])
        peers = self.read(named[1]) // size if name.startswith("set") else self._no_peers(slots)
        if not self.reader.waits:
            starts = np.flatnonzero(slots % size == 0)
            slots, peers = slots[starts], peers[starts]
        if not len(slots):
            return
        pages = slots // size
        self.tell(EventKind.BIND, self.edge.target, pages, peers, name)
        self._touched.append(pages)

    def _sample_slots(self, pages: Column, method: str) -> None:
        """Entries within the pages, for the offset check: the last slot at level 2, all at level 3."""
        if self.ledger.level < 2 or self.reader.waits:
            return
        size = self._source.page_size
        offsets = np.array([0, size - 1]) if self.ledger.level == 2 else np.arange(size)
        slots = (pages[:, None] * size + offsets).ravel()
        entries = self.reader.entries(self._mapping, slots)
        self.tell(EventKind.SLOTS, self.edge.target, slots, entries, method)


_NONE = np.empty(0, dtype=np.int64)


def _distinct(pages: np.ndarray, peers: np.ndarray | None) -> tuple[np.ndarray, np.ndarray | None]:
    """A set that was copied token by token, one entry a page (the first)."""
    first = np.sort(np.unique(pages, return_index=True)[1])
    return pages[first], None if peers is None else peers[first]


def watch(allocator, pools: tuple[PoolShape, ...], edges: tuple[EdgeShape, ...], ledger: Ledger) -> Watch:
    """Watches any allocator with these method names, without an engine: a loop, a test, real SGLang.

    The caller names who asks by `watch.begin(cause, now_us)` and ends an operation by `ledger.settle`.
    """
    return Watch(allocator, pools, edges, ledger)
