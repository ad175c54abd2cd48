"""Wraps a pool whose pages are objects that carry their own reference counts, and tells the ledger.

Fits LMCache's paged allocator: a free list that is a deque, whose border says which pages are lent and which come back;
`allocate` and `batched_allocate`, which give each page one reference; `ref_count_up` and `ref_count_down` of the pages;
and `free` and `batched_free`, which give up the last one, also when nobody has counted down. Read are arguments and
answers, and where a page's memory lies; never a count, which is what is to be checked. The free list is replaced by one
that tells, with the same pages in the same order; nothing else of what the target does is changed, and an exception of
it passes through after what was seen has been told.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

from stress.check.event import EventKind, PoolShape
from stress.check.shadow import Ledger
from stress.engine.page_objects import AskingEngine, PageObjects
from stress.probe.counted_watch import CountedWatch

_LENDS = ("allocate", "batched_allocate")
_FREES = ("free", "batched_free")
_COUNTS_DOWN = "ref_count_down"

# By themselves: up to Python 3.11 a member is looked up on its class at the price of a call.
_LEND, _RETURN, _REF, _UNREF = EventKind.LEND, EventKind.RETURN, EventKind.REF, EventKind.UNREF


class FreeList(deque):
    """A deque that says what leaves it and what comes: what a call takes or brings as a whole, in its order."""

    def __init__(self, pages: Iterable, left: Callable[[list], None], came: Callable[[list], None]) -> None:
        super().__init__(pages)
        self._left, self._came = left, came

    def popleft(self):
        page = super().popleft()
        self._left([page])
        return page

    def pop(self):
        page = super().pop()
        self._left([page])
        return page

    def append(self, page) -> None:
        super().append(page)
        self._came([page])

    def appendleft(self, page) -> None:
        super().appendleft(page)
        self._came([page])

    def extend(self, pages: Iterable) -> None:
        pages = list(pages)
        super().extend(pages)
        self._came(pages)


class WatchedObjects:
    """The one pool."""

    def __init__(self, shape: PoolShape, objects: PageObjects) -> None:
        self.shape = shape
        self.name, self.page_size = shape.name, shape.page_size
        self._objects = objects

    def free_pages(self) -> int:
        """As the target counts its free list."""
        return self._objects.free_pages()

    def free_list(self) -> list[int]:
        """The free list, in its order."""
        return [self._objects.page_of(page) for page in self._objects.target.free_blocks]


class NoAsker:
    """Whoever works without an engine."""

    step, asking = "", -1


class ObjectWatch(CountedWatch):
    """Watches `objects.target`, a pool of which nothing is on loan yet, and all of its pages."""

    engine: AskingEngine

    def __init__(self, objects: PageObjects, shape: PoolShape, ledger: Ledger) -> None:
        super().__init__(WatchedObjects(shape, objects), ledger)
        self.engine = NoAsker
        self._page_of = objects.page_of
        self._counting_down = False
        # Pages that have left the free list in the call at hand, and were not told yet.
        self._left: list[int] = []
        pool = objects.target
        for page in pool.free_blocks:
            self._wrap(page, "ref_count_up", self._taking)
            self._wrap(page, _COUNTS_DOWN, self._giving_up)
        for name in _LENDS:
            self._wrap(pool, name, self._lending)
        for name in _FREES:
            self._wrap(pool, name, self._freeing)
        pool.free_blocks = FreeList(pool.free_blocks, self._went, self._came)

    def take_cause(self) -> None:
        """The cause of what follows: the operation, and the request that the engine asks for within it."""
        super().take_cause()
        asking = self.engine.asking
        rid = asking if asking >= 0 else self.operation.rid
        if self.cause.rid != rid:
            self.cause = self.cause.of(rid)

    def _wrap(self, owner, name: str, make: Callable[..., Callable]) -> None:
        inner = getattr(owner, name, None)
        if inner is not None:
            setattr(owner, name, make(owner, name, inner))

    def _lending(self, owner, name: str, inner: Callable) -> Callable:
        def call(*args, **kwargs):
            self._enter(name)
            try:
                return inner(*args, **kwargs)
            finally:
                self._leave()

        return call

    def _taking(self, page, name: str, inner: Callable) -> Callable:
        def call():
            self._enter(name)
            try:
                inner()
            finally:
                self._leave()
            self._tell_references(_REF, [self._page_of(page)], name)

        return call

    def _giving_up(self, page, name: str, inner: Callable) -> Callable:
        def call():
            self._enter(name)
            self._tell_references(_UNREF, [self._page_of(page)], name)
            self._counting_down = True
            try:
                inner()
            finally:
                self._counting_down = False
                self._leave()

        return call

    def _freeing(self, owner, name: str, inner: Callable) -> Callable:
        def call(pages, *args, **kwargs):
            named = [pages] if name == "free" else list(pages)
            self._enter(name)
            self._tell_went()
            if not self._counting_down:
                self._tell_references(_UNREF, [self._page_of(page) for page in named], name)
            try:
                return inner(pages if name == "free" else named, *args, **kwargs)
            finally:
                self._leave()

        return call

    def _over(self) -> None:
        self._tell_went()

    def _went(self, pages: list) -> None:
        self._left += map(self._page_of, pages)
        if not self._depth:
            self._tell_went()  # by no watched method

    def _came(self, pages: list) -> None:
        self._tell_went()
        ids = [self._page_of(page) for page in pages]
        if ids:
            self.tell(_RETURN, self.source.name, ids, None, self._method or "free_blocks")

    def _tell_went(self) -> None:
        """Whoever takes a page has its first reference."""
        pages, self._left = self._left, []
        if not pages:
            return
        method = self._method or "free_blocks"
        self._tell_new(pages, method)
        self._tell_references(_REF, pages, method)
