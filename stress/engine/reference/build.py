"""Builds the reference engine of one rank from a resolved configuration."""

from __future__ import annotations

import numpy as np

from allocator.faults import ALLOCATOR_FAULTS, CACHE_FAULTS
from allocator.faults.log import NO_FAULTS, FaultLog, with_faults
from allocator.hybrid_swa import HybridSWAAllocator
from allocator.prefix_cache import PrefixCache
from allocator.swa_ring import SWARing
from linker.agreed_linker import AgreedLinker
from linker.direct import DirectLinker
from stress.engine.contract import Warm
from stress.engine.reference.engine import ReferenceEngine
from stress.engine.reference.external import External
from stress.engine.reference.faults import AGREED_FAULTS, ENGINE_FAULTS, EXTERNAL_FAULTS, MEMORY_FAULTS
from stress.engine.reference.habits import Habits
from stress.engine.reference.memory import Memory
from stress.engine.reference.row import NO_PAGES
from stress.engine.store_linker import build_linker, build_store
from stress.serving.ballast import ROWS as BALLAST_ROWS


def build_reference(
    config,
    arm,
    device: str,
    warm: Warm | None,
    habits: Habits | None = None,
    faults: FaultLog = NO_FAULTS,
    rank: int = 0,
) -> ReferenceEngine:
    """`config`: stress.config.Config; `arm`: its Arm; `warm`: what the external store holds at the start;
    `habits`: those of a release (`HABITS`), by default what our own arms have; `faults`: what is wrong with it;
    `rank`: which transfers fail (`linker.faults`) goes by it.

    The hit of a prefix is gated by SWA only where the linker restores SWA: under unified KV, and with a ring,
    the target model keeps its window per request (sglang `swa_gates_prefix_match`).
    """
    habits = habits or Habits()
    pool = config.pool
    paged_swa = not pool.swa_ring
    skips_swa = pool.unified_kv or pool.swa_ring
    allocator = with_faults(HybridSWAAllocator, ALLOCATOR_FAULTS, faults)(
        pool.full_pages * pool.page_size,
        pool.swa_pages * pool.page_size,
        pool.page_size,
        device,
        release=arm.release or "unpatched",
        ring=pool.swa_ring,
    )
    window_pages = -(-pool.window_tokens // pool.page_size)
    gates = paged_swa and (habits.asks_swa_where_paged or not skips_swa)
    cache = with_faults(PrefixCache, CACHE_FAULTS, faults)(window_pages, swa_gates_match=gates, swa=paged_swa)
    max_rows = config.serving.max_running + (BALLAST_ROWS if config.workload.ballast else 0)
    ring = None
    if pool.swa_ring:
        # A window touches a page more than it is long, and drafts are reserved ahead of it.
        ahead_pages = -(-2 * config.serving.draft_tokens // pool.page_size)
        ring_tokens = (window_pages + 1 + ahead_pages) * pool.page_size
        ring = SWARing(max_rows, ring_tokens, pool.page_size)
    memory = with_faults(Memory, MEMORY_FAULTS, faults)(allocator, cache, pool.window_tokens, paged_swa)
    engine = with_faults(ReferenceEngine, ENGINE_FAULTS, faults)
    return engine(
        memory,
        _linker(config, skips_swa, warm, rank),
        max_rows=max_rows,
        spare_pages=2 + 2 * config.serving.draft_tokens // pool.page_size,
        ring=ring,
        habits=habits,
        external=with_faults(External, EXTERNAL_FAULTS, faults),
        agreed_linker=with_faults(AgreedLinker, AGREED_FAULTS, faults),
    )


def _linker(config, skips_swa: bool, warm: Warm | None, rank: int) -> DirectLinker | None:
    if not config.linker.enabled:
        return None
    store = build_store(config.linker)
    if warm is not None:
        shared = config.linker.store == "shared"
        store.warm(np.unique(np.concatenate([NO_PAGES, *warm.prefixes(not shared)])))
    return build_linker(config.linker, store, skips_swa=skips_swa, rank=rank)
