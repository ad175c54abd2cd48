"""Builds a real engine of one rank from a resolved configuration and the folder of a tree."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from stress.engine.contract import Warm
from stress.engine.sglang.calls import Calls
from stress.engine.sglang.engine import SglangEngine
from stress.engine.sglang.external_linker import external_linker, store_keys
from stress.engine.sglang.page_allocator import page_allocator
from stress.engine.sglang.request import token_array
from stress.engine.sglang.tree_import import Tree, load_tree, tree_core_of
from stress.engine.store_linker import build_linker, build_store
from stress.serving.ballast import ROWS as BALLAST_ROWS

ROW_SPARE_TOKENS = 4096


def build_sglang(
    config, root: Path, device: str, warm: Warm | None, tree_core: str | None = None, rank: int = 0
) -> SglangEngine:
    """`config`: stress.config.Config. Raises ValueError for what this engine can't be, one line with the cure."""
    pool = config.pool
    if pool.page_size == 1:
        raise ValueError("pool.page_size: SGLang pages of 1 are another allocator; give a page size above 1")
    tree = load_tree(root, tree_core)
    features = tree.features
    if not features.segment_free:
        raise ValueError(f"{root}: sglang {tree.version} has no segment free; use 0.5.20 or later")
    paged_swa = not pool.swa_ring
    window_pages = -(-pool.window_tokens // pool.page_size)
    max_rows = config.serving.max_running + (BALLAST_ROWS if config.workload.ballast else 0)
    rows = tree.ReqToTokenPool(max_rows, _row_tokens(config), device, False)
    allocator = _allocator(tree, config, rows, device)
    skips_swa = pool.unified_kv or pool.swa_ring
    cache = _cache(tree, config, rows, allocator, gates=not skips_swa)
    if tree_core not in (None, tree_core_of(cache)):  # a tree falls back without a word
        raise ValueError(f"{root}: its {tree_core} tree core can't be loaded here; ask for the other one")
    linker = None
    if config.linker.enabled:
        linker = _linker(tree, config, skips_swa, window_pages, warm, rank)
        cache.init_cache_linker(linker)
    calls = Calls(tree, allocator, cache, rows, linker, pool.window_tokens)
    return SglangEngine(
        calls, window_tokens=pool.window_tokens, paged_swa=paged_swa, gates_match=not skips_swa
    )


def _row_tokens(config) -> int:
    """A row can be as long as the FULL pool: a request that is longer is never admitted."""
    return config.pool.full_pages * config.pool.page_size + ROW_SPARE_TOKENS


def _allocator(tree: Tree, config, rows, device: str):
    pool = config.pool
    window_pages = -(-pool.window_tokens // pool.page_size)
    ring_tokens = (window_pages + 1) * pool.page_size if pool.swa_ring else None
    return page_allocator(
        tree,
        pool.full_pages * pool.page_size,
        pool.swa_pages * pool.page_size,
        pool.page_size,
        device=device,
        rows=rows,
        ring_tokens=ring_tokens,
    )


def _cache(tree: Tree, config, rows, allocator, *, gates: bool):
    wanted = {
        "disable": False,
        "req_to_token_pool": rows,
        "token_to_kv_pool_allocator": allocator,
        "page_size": config.pool.page_size,
        "sliding_window_size": config.pool.window_tokens,
        "tree_components": (tree.ComponentType.FULL, tree.ComponentType.SWA),
        "tp_cache_group": None,
        "swa_gates_prefix_match": gates,
    }
    fields = tree.CacheInitParams.__dataclass_fields__
    return tree.UnifiedRadixCache(
        tree.CacheInitParams(**{name: value for name, value in wanted.items() if name in fields})
    )


def _linker(tree: Tree, config, skips_swa: bool, window_pages: int, warm: Warm | None, rank: int):
    store = build_store(config.linker)
    if warm is not None:
        store.warm(_warm_keys(tree, warm, config.pool.page_size))
    direct = build_linker(config.linker, store, skips_swa=skips_swa, rank=rank)
    pools = {tree.PoolName.KV: object()}
    if not skips_swa:
        pools[tree.PoolName.SWA] = object()
    base = tree.unified_cache_linker.UnifiedCacheLinker
    cancels = tree.features.private_load
    return external_linker(base, direct, pools, config.pool.page_size, window_pages, cancels=cancels)


def _warm_keys(tree: Tree, warm: Warm, page_size: int) -> np.ndarray:
    """The store's keys of the prefixes that it holds at the start: upstream's own page hashes of their tokens."""
    keys = [np.zeros(0, dtype=np.int64)]
    page_hashes = tree.unified_cache_linker.get_storage_hash_str
    # Hashing costs a pass over the tokens, so only what this rank's own sessions wrote is put in: it asks for no other.
    for prefix in warm.prefixes(True):
        key = tree.RadixKey(token_ids=token_array(warm.tokens_of(prefix)), extra_key=None)
        keys.append(store_keys(page_hashes(key, None, page_size=page_size)))
    return np.unique(np.concatenate(keys))
