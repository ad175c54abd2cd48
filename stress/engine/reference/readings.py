"""What a reference engine holds, and what the loop, the probe and the ledger may read of it.

The verbs are in `engine`, on the class below it: nothing here lends, frees, locks or moves a page. Shapes and units are
those of `stress.engine.contract`; counts are the allocator's and the cache's own.
"""

from __future__ import annotations

import numpy as np

from allocator.swa_ring import SWARing
from linker.agreed_linker import AgreedLinker
from linker.direct import DirectLinker
from stress.check.event import EdgeShape, PoolShape
from stress.engine.contract import RequestSpec, Room, RowPass, WindowRead
from stress.engine.reference.external import External
from stress.engine.reference.habits import Habits
from stress.engine.reference.memory import Memory
from stress.engine.reference.publish import keys_to, live_to_root, next_window_release
from stress.engine.reference.ring import WindowRing
from stress.engine.reference.row import NO_PAGES, Row

NEVER = 1 << 62
OURS = Habits()


class EngineReadings:
    """`max_rows`: requests that can hold a row at once; `spare_pages`: draft tail of a row."""

    observes = frozenset(
        {
            *("lends", "returns", "mapping", "groups", "tables", "cache", "counts", "drain"),
            *("owners", "writes", "transfers", "reads", "live", "locks", "keys", "content"),
            "whole_prefix",
        }
    )
    marks_exempt: frozenset[str] = frozenset()

    def __init__(
        self,
        memory: Memory,
        linker: DirectLinker | AgreedLinker | None,
        *,
        max_rows: int,
        spare_pages: int,
        ring: SWARing | None = None,
        habits: Habits = OURS,
        external: type[External] = External,
        agreed_linker: type[AgreedLinker] = AgreedLinker,
    ) -> None:
        self.now_us = 0
        self.memory = memory
        self.habits = habits
        self.external = external(memory, linker, habits)
        self.agreed_linker = agreed_linker
        self.agreed: AgreedLinker | None = None
        self.ring = None if ring is None else WindowRing(memory, ring)
        self.max_rows = max_rows
        self.spare_pages = spare_pages
        self.page_size = memory.page_size
        allocator = memory.allocator
        full = PoolShape("full", allocator.size_full // self.page_size, self.page_size, null_page=0)
        swa = PoolShape("swa", allocator.size_swa // self.page_size, self.page_size, null_page=0)
        self.pools = (full, swa)
        self.edges = (EdgeShape("full", "swa", no_peer=0),)
        if ring is not None:
            # The paged SWA pool is watched all the same: nothing may touch it. Pages before the first row are padding.
            rows = PoolShape(
                "ring", ring.rows * ring.row_pages, self.page_size, null_page=0, first_page=ring.row_pages
            )
            self.pools = (full, swa, rows)
            self.edges = (EdgeShape("full", "ring", no_peer=0, gives_back=False),)
            self.observes = self.observes | {"row_memory"}
        if not habits.inserts_loads_at_once:
            self.observes = self.observes | {"private_loads"}
        self._specs: dict[int, RequestSpec] = {}
        self._rows: dict[int, Row] = {}
        self._spec_tails = 0
        self._published = memory.cache.root  # the deep end of the path that was published last

    @property
    def step(self) -> str:
        return self.memory.step

    # By which keys

    def _usable_pages(self, spec: RequestSpec) -> int:
        """Pages that the request may get from the cache or the store instead of computing them."""
        # At least one position is computed anew: it gives the first logits (upstream limits the key likewise).
        usable = spec.prompt_tokens - 1
        if self.ring is not None:
            usable = min(usable, self.ring.most_cached(spec))
        return usable // self.page_size

    def keys_of(self, spec: RequestSpec) -> np.ndarray:
        """Keys by which the cache and the store find the request's pages: int64[pages]."""
        return spec.keys

    def keys_to_publish(self, row: Row) -> np.ndarray:
        """The same for what the row is about to publish; those of its own prefix in the tree are what they were."""
        return row.keys

    def lookup_keys(self, rid: int) -> np.ndarray:
        spec = self._specs[rid]
        keys = self.keys_of(spec)[: self._usable_pages(spec)]
        return keys if spec.restorable is None else keys[: spec.restorable // self.page_size]

    # The loop and the ledger

    def room(self) -> Room:
        return Room(*self.memory.room())

    def next_window_eviction(self, rid: int) -> int:
        if not self.memory.paged_swa:
            return NEVER
        return next_window_release(self.memory, self._rows[rid])

    def table(self, rid: int) -> np.ndarray:
        row = self._rows.get(rid)
        return NO_PAGES if row is None else row.pages

    def row_pass(self, rid: int, accepted: int) -> RowPass:
        return self.ring.last_pass(self._rows[rid], accepted)

    def row_keeper(self) -> SWARing:
        return self.ring.ring

    def window_read(self, rid: int) -> WindowRead:
        return WindowRead(self.pools[self.memory.paged_swa].name, *self.memory.window_of(self._rows[rid]))

    def published_live(self) -> np.ndarray:
        return live_to_root(self._published)

    def cached_live(self) -> np.ndarray:
        return self.memory.cache.swa_live_pages()

    def lock_keeper(self) -> object:
        return self.memory.cache

    def committed(self, rid: int) -> int:
        row = self._rows.get(rid)
        return 0 if row is None else row.committed

    def published_keys(self, first: int) -> np.ndarray:
        return keys_to(self._published, first)

    def running(self) -> list[int]:
        return list(self._rows)

    def cached_pages(self) -> np.ndarray:
        return self.memory.cache.cached_pages()

    def counts(self) -> dict[str, tuple[int, int, int, int]]:
        allocator, cache = self.memory.allocator, self.memory.cache
        full_free = allocator.full_available_size() // self.page_size
        swa_free = allocator.swa_available_size() // self.page_size
        return {
            "full": (self.pools[0].pages, full_free, cache.full_evictable, cache.full_protected),
            "swa": (self.pools[1].pages, swa_free, cache.swa_evictable, cache.swa_protected),
        }

    def leftover(self) -> tuple[int, int, int, int, int]:
        linker = self.external.linker
        loads, offloads = linker.in_flight() if linker else (0, 0)
        locks = sum(len(held) for held in self.memory.cache.holders.values())
        return locks, self.external.pins(), loads, offloads, len(self._rows)

    def kept_of(self, rid: int) -> tuple[int, int, int]:
        locks = len(self.memory.cache.holders.get(rid, ()))
        return locks, self.external.loads_of(rid), int(rid in self._rows)

    def marks(self) -> dict[str, int]:
        cache = self.memory.cache
        return {
            **self.external.marks,
            "node_split": cache.nodes_split,
            "tombstone_recovered": cache.pages_recovered,
            "spec_tail_returned": self._spec_tails,
        }

    def allocators(self) -> object:
        return self.memory.allocator

    def linker(self) -> DirectLinker | None:
        return self.agreed.own if self.agreed else self.external.linker

    def standing(self) -> tuple[int, ...]:
        cache, allocator = self.memory.cache, self.memory.allocator
        return (
            allocator.full_available_size(),
            allocator.swa_available_size(),
            *cache.counts(),
            cache.fingerprint,
            cache.nodes_split,
            cache.pages_recovered,
            self.external.pins(),
            len(self._rows),
        )
