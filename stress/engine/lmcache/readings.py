"""What may be read of a pool alone: see the contract, `stress.engine.groups` and `stress.engine.page_objects`."""

from __future__ import annotations

import numpy as np

from stress.check.event import PoolShape
from stress.engine.alone import Alone
from stress.engine.contract import RequestSpec, Room
from stress.engine.groups import Group
from stress.engine.lmcache.pool import Page, PagePool

NEVER = 1 << 62


class Holder:
    """A request that may hold pages: in order, and how many of its positions hold a token."""

    __slots__ = ("committed", "pages", "spec")

    def __init__(self, spec: RequestSpec) -> None:
        self.spec = spec
        self.committed = 0
        self.pages: list[Page] = []


class Readings(Alone):
    """`_holders`: by request, those that are running."""

    observes = frozenset(
        {
            *(
                "lends",
                "returns",
                "groups",
                "references",
                "page_objects",
                "tables",
                "counts",
                "drain",
                "owners",
            ),
            *("writes", "reads", "content"),
        }
    )
    # What takes a window, a prefix cache or a linker.
    marks_exempt = frozenset(
        {
            *("linker_loaded_without_swa", "swa_released_out_of_window", "swa_evicted", "full_evicted"),
            *("free_group_with_unmapped", "tombstone_recovered", "node_split"),
            *("load_back", "offloaded", "load_failed", "offload_failed"),
        }
    )
    edges = ()
    step = ""

    def __init__(self, pool: PagePool, max_rows: int) -> None:
        self.now_us = 0
        self.asking = -1
        self.pool = pool
        self.max_rows = max_rows
        self.page_size = pool.page_size
        self.pools = (PoolShape("pages", pool.pages, pool.page_size, None),)
        self.groups = (Group("full", pool.page_size),)
        self.changed: list[int] = []
        self._specs: dict[int, RequestSpec] = {}
        self._holders: dict[int, Holder] = {}
        self._spec_tails = 0

    def room(self) -> Room:
        return Room(self.pool.free_pages() * self.page_size, NEVER)

    def table(self, rid: int) -> np.ndarray:
        return np.array(self.group_table(rid, "full"), dtype=np.int64)

    def group_table(self, rid: int, group: str, first: int = 0, end: int | None = None) -> list[int]:
        holder = self._holders.get(rid)
        return [] if holder is None else [self.pool.page_of(page) for page in holder.pages[first:end]]

    def pages_short(self, rid: int, upto: int) -> int:
        return max(0, -(-upto // self.page_size) - len(self._holders[rid].pages))

    def committed(self, rid: int) -> int:
        holder = self._holders.get(rid)
        return 0 if holder is None else holder.committed

    def running(self) -> list[int]:
        return list(self._holders)

    def counts(self) -> dict[str, tuple[int, int, int, int]]:
        return {"pages": (self.pool.pages, self.pool.free_pages(), 0, 0)}

    def leftover(self) -> tuple[int, int, int, int, int]:
        return 0, 0, 0, 0, len(self._holders)

    def kept_of(self, rid: int) -> tuple[int, int, int]:
        return 0, 0, int(rid in self._holders)

    def marks(self) -> dict[str, int]:
        return {"spec_tail_returned": self._spec_tails}

    def allocators(self) -> PagePool:
        return self.pool

    # There is no linker.

    def linker(self) -> None:
        return None

    def pending_us(self) -> None:
        return None

    def loads_due_us(self) -> int:
        return 0

    def failed_loads(self) -> list[tuple[int, int]]:
        return []

    def next_window_eviction(self, rid: int) -> int:
        return NEVER

    def standing(self) -> tuple[int, ...]:
        return (self.pool.free_pages(), len(self._holders))
