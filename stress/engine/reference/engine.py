"""The reference engine: the verbs of `stress.engine.contract` over allocator/ and linker/.

Call order and free groups are those of SGLang 0.5.22 and 0.5.23: a request matches and locks, a load-back gives
private slots, slots are allocated after evicting, results are processed inside one free group, window eviction
has a group of its own, an abort has none. What upstream screens off is not screened off here: see
`release_window` and `Memory._free_leaf`. What differs between releases is in `habits`.
"""

from __future__ import annotations

import numpy as np

from allocator.swa_ring import SWARing
from linker.agreed_linker import AgreedLinker
from linker.direct import DirectLinker
from stress.check.event import EdgeShape, PoolShape
from stress.engine.contract import Admission, RequestSpec, Room, RowPass, WindowRead
from stress.engine.reference.external import External
from stress.engine.reference.habits import Habits
from stress.engine.reference.memory import Memory
from stress.engine.reference.publish import (
    EVICTION_INTERVAL_TOKENS,
    keys_to,
    live_to_root,
    next_window_release,
    publish,
    release_private,
    release_window,
)
from stress.engine.reference.ring import WindowRing
from stress.engine.reference.row import NO_PAGES, Row

NEVER = 1 << 62
OURS = Habits()


class ReferenceEngine:
    """One rank's KV memory. `max_rows`: requests that can hold a row at once; `spare_pages`: draft tail of a row."""

    observes = frozenset(
        {
            *("lends", "returns", "mapping", "groups", "tables", "cache", "counts", "drain"),
            *("owners", "writes", "transfers", "reads", "live", "locks", "keys", "content"),
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

    # Requests

    def open(self, spec: RequestSpec) -> None:
        self._specs[spec.rid] = spec

    def close(self, rid: int) -> None:
        del self._specs[rid]

    def admit(self, rid: int, spare: int) -> Admission | None:
        spec, memory = self._specs[rid], self.memory
        if len(self._rows) >= self.max_rows:
            return None
        row = Row(spec, self.keys_of(spec), self.spare_pages)
        keys = row.keys[: self._usable_pages(spec)]
        match = memory.cache.match(keys)
        row.receipt = memory.cache.lock(match.node, rid)
        row.append(match.pages)
        row.committed = row.allocated = row.protected = row.held * self.page_size
        row.swa_from = match.swa_from * self.page_size
        if match.known > row.held:
            row.branch = match.known * self.page_size
        cached, ready_us = row.committed, self.now_us
        if memory.room()[0] < spec.prompt_tokens - cached + spare:
            return self._refuse(row)
        if spec.restorable is not None:
            keys = keys[: spec.restorable // self.page_size]
        pages = self.external.restorable(keys, row.held)
        if pages:
            # Without room for the load its tokens are computed, as upstream falls back.
            ready_us = self.external.load_back(row, pages, self.now_us) or ready_us
        if self.ring is not None:
            self.ring.acquire(row)
        self._rows[rid] = row
        return Admission(cached, row.committed - cached, ready_us)

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

    def _refuse(self, row: Row) -> None:
        self.memory.cache.unlock(row.receipt)

    # Slots

    def extend(self, rows: list[tuple[int, int]]) -> bool:
        if not self._lengthen([(self._rows[rid], upto) for rid, upto in rows], "prompt"):
            return False
        self.external.start_loads()
        return True

    def reserve(self, rows: list[tuple[int, int]]) -> bool:
        targets = []
        for rid, tokens in rows:
            row = self._rows[rid]
            targets.append((row, self.memory.pages_for(row.committed + tokens) * self.page_size))
        return self._lengthen(targets, "draft reserve")

    def _lengthen(self, targets: list[tuple[Row, int]], step: str) -> bool:
        if not self.memory.lengthen(targets, step):
            return False
        if self.ring is not None:
            for row, _ in targets:
                self.ring.enter(row)
        return True

    def commit(self, rows: list[tuple[int, int]]) -> None:
        for rid, accepted in rows:
            row = self._rows[rid]
            row.committed += accepted
            if row.committed > row.allocated:
                raise ValueError(
                    f"commit: request {rid} has {row.allocated} slots and would commit {row.committed}; reserve first"
                )

    def evict(self, full: int, swa: int) -> None:
        self.memory.evict(full, swa)

    # Result processing

    def results_begin(self) -> None:
        # The step's one synchronize: results are processed when the sampled tokens are on the host.
        self.synchronize()
        self.memory.allocator.free_group_begin()

    def results_end(self) -> None:
        self.memory.allocator.free_group_end()

    def checkpoint(self, rid: int) -> None:
        self._publish(rid, finished=False)

    def _publish(self, rid: int, *, finished: bool) -> None:
        row, external = self._rows[rid], self.external
        row.keys = self.keys_to_publish(row)
        end = self._published = publish(self.memory, row, finished=finished)
        if finished or self.habits.checkpoint_stores:
            external.offload(rid, end, self.now_us)
        if not finished and self.habits.matches_after_insert:
            external.match_again(row)

    def evict_windows(self, rids: list[int]) -> None:
        self.memory.allocator.free_group_begin()
        for rid in rids:
            row = self._rows[rid]
            release_window(self.memory, row, row.committed, EVICTION_INTERVAL_TOKENS)
        self.memory.allocator.free_group_end()

    def finish(self, rid: int) -> None:
        self._publish(rid, finished=True)
        self._leave(rid)

    def abort(self, rid: int) -> None:
        self._leave(rid)

    def retract(self, rid: int) -> None:
        self._leave(rid)

    def _leave(self, rid: int) -> None:
        row = self._rows[rid]
        self.external.cancel_load(row)
        if self.ring is not None:
            self.ring.release(row)
        self._spec_tails += release_private(self.memory, row)
        del self._rows[rid]

    # The linker and the end

    def poll(self) -> int:
        return self.external.poll(self.now_us)

    def loads_due_us(self) -> int:
        return 0  # each begins at its admission, which says when it ends

    def failed_loads(self) -> list[tuple[int, int]]:
        unread = self.external.take_unread()
        if not len(unread):
            return []
        named = [(rid, np.isin(row.pages, unread)) for rid, row in self._rows.items()]
        return [(rid, int(bad.argmax()) * self.page_size) for rid, bad in named if bad.any()]

    def drain(self) -> None:
        self.memory.evict(self.memory.allocator.size_full, 0)

    def synchronize(self) -> None:
        self.memory.wait_for_device()

    def exchange(self) -> bytes:
        return self.external.linker.exchange() if self.external.linker else b""

    def learn(self, news: list[bytes]) -> None:
        for additions in news:
            self.external.linker.learn(additions)

    def pending_us(self) -> int | None:
        return self.external.pending_us(self.now_us)

    # What may be read

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

    # The attention-TP group

    def join(self, members: int) -> AgreedLinker | None:
        linker = self.external.linker
        if linker is not None:
            self.agreed = self.external.linker = self.agreed_linker(linker, members, lambda: self.now_us)
        return self.agreed

    def lookup_keys(self, rid: int) -> np.ndarray:
        spec = self._specs[rid]
        keys = self.keys_of(spec)[: self._usable_pages(spec)]
        return keys if spec.restorable is None else keys[: spec.restorable // self.page_size]

    def landed(self, rids: list[int]) -> bool:
        return self.agreed is None or all(self._rows[rid].load_ticket is None for rid in rids)

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
