"""Which pages the forward pass of the step at hand is to write, where a prefix is published before it is computed.

A page is promised when its request gets the slots, and a request that is scheduled behind it in the same step may find
it. The promise lasts for that operation: then the pass runs, in which it is kept. It is withdrawn where its request
loses its slots before the operation is over. That is remembered with the lend that it was true of, through lends that
keep what is in a page, until somebody writes it. Judges nothing.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from stress.check.event import Event
from stress.check.pool_shadow import PoolShadow


class _Of:
    """Of one pool, by page."""

    def __init__(self, pool: PoolShadow) -> None:
        size = len(pool.on_loan)
        self.lent_by = pool.lent_by
        self.made_in = np.full(size, -1, dtype=np.int32)  # of which lend it is promised
        self.pass_in = np.full(size, -1, dtype=np.int32)  # of which lend the pass that runs next writes it
        self.withdrawn_in = np.full(size, -1, dtype=np.int32)  # of which lend it was withdrawn
        self.withdrawn_by = np.zeros(size, dtype=np.int32)  # and under which of Shadow.causes


class Promises:
    """Pools that no PROMISED has named have none, and cost nothing."""

    def __init__(self, pools: dict[str, PoolShadow]) -> None:
        self._pools = pools
        self._pages: dict[str, _Of] = {}
        self._new: list[tuple[_Of, np.ndarray]] = []  # made in the operation at hand
        self._operation = -1  # that made the latest ones
        self._of_pass: list[tuple[_Of, np.ndarray]] = []

    def make(self, event: Event) -> None:
        pool = self._pools[event.pool]
        of = self._pages.get(event.pool)
        if of is None:
            of = self._pages[event.pool] = _Of(pool)
        if event.cause.operation != self._operation:
            self._operation = event.cause.operation
            for earlier, kept in self._of_pass:
                earlier.pass_in[kept] = -1
            self._of_pass = []
        pages = pool.inside(event.pages)
        of.made_in[pages] = of.pass_in[pages] = of.lent_by[pages]
        of.withdrawn_in[pages] = -1
        self._new.append((of, pages))
        self._of_pass.append((of, pages))

    def withdraw(self, event: Event, cause: int) -> None:
        """`cause`: its number in Shadow.causes."""
        of = self._pages.get(event.pool)
        if of is None:
            return
        pages = self._pools[event.pool].inside(event.pages)
        pages = pages[of.made_in[pages] == of.lent_by[pages]]
        of.made_in[pages] = of.pass_in[pages] = -1
        of.withdrawn_in[pages] = of.lent_by[pages]
        of.withdrawn_by[pages] = cause

    def are_made(self, pool: str, pages: np.ndarray) -> np.ndarray:
        """bool[n]; the pages must have a place in the pool's arrays, as in what follows."""
        of = self._pages.get(pool)
        return np.zeros(len(pages), dtype=bool) if of is None else of.made_in[pages] == of.lent_by[pages]

    def in_pass(self, pool: str, pages: np.ndarray) -> np.ndarray:
        """bool[n]: the pass that the last promises are of writes them, before any of its requests reads them."""
        of = self._pages.get(pool)
        return np.zeros(len(pages), dtype=bool) if of is None else of.pass_in[pages] == of.lent_by[pages]

    def withdrawn(self, pool: str, pages: np.ndarray) -> np.ndarray:
        """Those of the pages whose promise was withdrawn, and that were not lent for other contents since."""
        of = self._pages.get(pool)
        return pages[:0] if of is None else pages[of.withdrawn_in[pages] == of.lent_by[pages]]

    def withdrawal(self, pool: str, page: int) -> int:
        """Number of the cause under which that was; 0: it was not."""
        of = self._pages.get(pool)
        return int(of.withdrawn_by[page]) if of and of.withdrawn_in[page] == of.lent_by[page] else 0

    def named_causes(self) -> Iterator[np.ndarray]:
        """Numbers of the causes under which promises were withdrawn."""
        return (of.withdrawn_by for of in self._pages.values())

    def keep(self, pool: str, pages: np.ndarray) -> None:
        """These, of `withdrawn`, have been lent with what is in them."""
        if len(pages):
            of = self._pages[pool]
            of.withdrawn_in[pages] = of.lent_by[pages]

    def end_operation(self) -> None:
        for of, pages in self._new:
            of.made_in[pages] = -1
        self._new = []
