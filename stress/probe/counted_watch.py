"""What watches of one pool have in common whose pages are shared by count: calls inside calls, and what they tell."""

from __future__ import annotations

import numpy as np

from stress.check.event import EventKind
from stress.check.shadow import Ledger
from stress.probe.capture import Column, HostReader
from stress.probe.journal import Journal

# By itself: up to Python 3.11 a member is looked up on its class at the price of a call.
_LEND = EventKind.LEND


class CountedWatch(Journal):
    """`pool` has `name`, `page_size`, `shape`, `free_pages()` and `free_list()`; `method` is the outermost call's."""

    def __init__(self, pool, ledger: Ledger) -> None:
        super().__init__(ledger, HostReader())
        self.pools = [pool]
        self.source = pool
        self.edge = None
        self._depth = 0
        self._method = ""

    def free_list(self, pool) -> Column:
        """The ids on the pool's free list, in its order."""
        return np.array(pool.free_list(), dtype=np.int64)

    def _enter(self, name: str) -> None:
        self._depth += 1
        if self._depth == 1:
            self.call += 1
            self._method = name
            self.take_cause()

    def _leave(self) -> None:
        self._depth -= 1
        if not self._depth:
            self._over()
            self._method = ""

    def _over(self) -> None:
        """The outermost call is over: what was kept back of it is told."""

    def _tell_new(self, pages: list[int], method: str) -> None:
        """Pages that were lent, and hold nothing."""
        self.tell(_LEND, self.source.name, pages, None, method)
        if self.on_lend is not None:
            self.on_lend(self.source.name, pages)

    def _tell_references(self, kind: EventKind, pages: list[int], name: str) -> None:
        if pages:
            self.source_lent = True  # tables may have changed
            self.tell(kind, self.source.name, pages, None, name)
