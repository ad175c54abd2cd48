"""What may be read of a real SGLang tree: room, rows, the cache, counts and marks, in pages, with no effect on it.

The counts are the tree's own words for what it holds; a paged SWA side alone has any beside its free pages.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from stress.check.event import PoolShape
from stress.engine.contract import Room, WindowRead
from stress.engine.sglang.calls import Calls
from stress.engine.sglang.request import SglangRequest

NO_PAGES = np.zeros(0, dtype=np.int64)
NEVER = 1 << 62
EVICTION_INTERVAL_TOKENS = 128  # SGLANG_SWA_EVICTION_INTERVAL


class SglangReadings:
    """The reading half of the engine contract; the engine that builds on it sets what is declared here."""

    calls: Calls
    pools: tuple[PoolShape, ...]
    page_size: int
    window_tokens: int
    paged_swa: bool
    _running: dict[int, SglangRequest]
    _marks: dict[str, int]

    def room(self) -> Room:
        return Room(*self.calls.room())

    def next_window_eviction(self, rid: int) -> int:
        """The scheduler's own trigger, and the first page that it would give back."""
        if not self.paged_swa:
            return NEVER
        kv, page_size = self._running[rid].kv, self.page_size
        cursor = self._cursor(kv)
        kept = -(-max(self.window_tokens, page_size) // page_size) * page_size
        slid = cursor + EVICTION_INTERVAL_TOKENS + self.window_tokens
        return max(slid, max(cursor, kv.cache_protected_len) + page_size + kept)

    def pending_us(self) -> int | None:
        return self.calls.linker.next_due_us() if self.calls.linker else None

    def table(self, rid: int) -> np.ndarray:
        request = self._running.get(rid)
        return NO_PAGES if request is None else self._row_pages(request)

    def committed(self, rid: int) -> int:
        request = self._running.get(rid)
        return 0 if request is None else request.kv.kv_committed_len

    def window_read(self, rid: int) -> WindowRead:
        request, page_size = self._running[rid], self.page_size
        if not self.paged_swa:
            return WindowRead(self.pools[0].name, 0, NO_PAGES)
        end = request.kv.kv_committed_len
        # Not the release's own word for what has left the window: that is what is checked.
        first = max(end - self.window_tokens, request.swa_from) // page_size
        return WindowRead(self.pools[1].name, first, self._row_pages(request, first, end))

    def running(self) -> list[int]:
        return list(self._running)

    def cached_pages(self) -> np.ndarray:
        slots = self.calls.cache.all_values_flatten()
        return slots[:: self.page_size].cpu().numpy().astype(np.int64) // self.page_size

    def counts(self) -> dict[str, tuple[int, int, int, int]]:
        allocator, cache, page_size = self.calls.allocator, self.calls.cache, self.page_size
        full = (allocator.full_available_size(), cache.full_evictable_size(), cache.full_protected_size())
        swa_free = allocator.swa_attn_allocator.available_size()
        swa = (
            (swa_free, cache.swa_evictable_size(), cache.swa_protected_size())
            if self.paged_swa
            else (swa_free, 0, 0)
        )
        return {
            pool.name: (pool.pages, *(tokens // page_size for tokens in tokens_by_term))
            for pool, tokens_by_term in zip(self.pools, (full, swa), strict=True)
        }

    def leftover(self) -> tuple[int, int, int, int, int]:
        cache, linker = self.calls.cache, self.calls.linker
        locked_pages = (cache.full_protected_size() + cache.swa_protected_size()) // self.page_size
        loads, offloads = linker.in_flight() if linker else (0, 0)
        pins = len(cache.linker.pending_offloads) if linker else 0
        return locked_pages, pins, loads, offloads, len(self._running)

    def marks(self) -> dict[str, int]:
        linker = self.calls.linker
        done, failed = (linker.offloads_done, linker.offloads_failed) if linker else (0, 0)
        return {**self._marks, "offloaded": done - failed, "offload_failed": failed}

    def allocators(self) -> object:
        return self.calls.allocator

    def linker(self) -> object | None:
        return self.calls.linker.direct if self.calls.linker else None

    def standing(self) -> tuple[int, ...]:
        return tuple(number for counts in self.counts().values() for number in counts)

    def _cursor(self, kv: Any) -> int:
        """Positions below it have given their SWA side back."""
        calls = self.calls
        return kv.get_evicted_seqlen(calls.swa) if calls.features.cursor_methods else kv.swa_evicted_seqlen

    def _row_pages(self, request: SglangRequest, first: int = 0, end: int | None = None) -> np.ndarray:
        """Pages from place `first` of the row on, of positions below `end`; None: of all that are allocated."""
        kv, page_size = request.kv, self.page_size
        part = slice(first * page_size, kv.kv_allocated_len if end is None else end, page_size)
        row = self.calls.rows.req_to_token[kv.req_pool_idx, part]
        return row.cpu().numpy().astype(np.int64) // self.page_size
