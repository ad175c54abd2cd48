"""Builds the reference engine of one rank from a resolved configuration."""

from __future__ import annotations

import numpy as np

from allocator.hybrid_swa import HybridSWAAllocator
from allocator.prefix_cache import PrefixCache
from allocator.swa_ring import SWARing
from linker.direct import DirectLinker
from linker.store import MemoryStore, SharedStore
from stress.engine.contract import Warm
from stress.engine.reference.engine import ReferenceEngine
from stress.engine.reference.habits import Habits
from stress.engine.reference.memory import Memory
from stress.engine.reference.row import NO_PAGES

STORES = {"memory": MemoryStore, "shared": SharedStore}


def build_reference(
    config, arm, device: str, warm: Warm | None, habits: Habits | None = None
) -> ReferenceEngine:
    """`config`: stress.config.Config; `arm`: its Arm; `warm`: what the external store holds at the start;
    `habits`: those of a release (`HABITS`), by default what our own arms have.

    The hit of a prefix is gated by SWA only where the linker restores SWA: under unified KV, and with a ring,
    the target model keeps its window per request (sglang `swa_gates_prefix_match`).
    """
    habits = habits or Habits()
    pool = config.pool
    paged_swa = not pool.swa_ring
    skips_swa = pool.unified_kv or pool.swa_ring
    allocator = HybridSWAAllocator(
        pool.full_pages * pool.page_size,
        pool.swa_pages * pool.page_size,
        pool.page_size,
        device,
        release=arm.release or "unpatched",
        ring=pool.swa_ring,
    )
    window_pages = -(-pool.window_tokens // pool.page_size)
    gates = paged_swa and (habits.asks_swa_where_paged or not skips_swa)
    cache = PrefixCache(window_pages, swa_gates_match=gates, swa=paged_swa)
    ring = None
    if pool.swa_ring:
        ring_tokens = (window_pages + 1) * pool.page_size
        ring = SWARing(config.serving.max_running, ring_tokens, pool.page_size)
    return ReferenceEngine(
        Memory(allocator, cache, pool.window_tokens, paged_swa),
        _linker(config, skips_swa, warm),
        max_rows=config.serving.max_running,
        spare_pages=2 + 2 * config.serving.draft_tokens // pool.page_size,
        ring=ring,
        habits=habits,
    )


def _linker(config, skips_swa: bool, warm: Warm | None) -> DirectLinker | None:
    if not config.linker.enabled:
        return None
    store = STORES[config.linker.store]()
    if warm is not None:
        shared = config.linker.store == "shared"
        store.warm(np.unique(np.concatenate([NO_PAGES, *warm.prefixes(not shared)])))
    return DirectLinker(store, skips_swa=skips_swa, delay_us=round(config.linker.delay_ms * 1000))
