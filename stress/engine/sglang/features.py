"""What a tree can do, asked of its objects and never of its version: a patched tree answers for itself."""

from __future__ import annotations

import inspect
from types import SimpleNamespace
from typing import Any

import msgspec


class Features(msgspec.Struct, frozen=True, kw_only=True):
    """Each field is True where the tree has it; the comment gives the first release that does."""

    segment_free: bool
    """free_swa_segment (0.5.20)"""
    full_segment_free: bool
    """free_full_segment (0.5.20)"""
    ring: bool
    """a per-request SWA ring: the allocator takes req_to_token_pool (0.5.20)"""
    free_list_method: bool
    """a pool lists its free pages by get_all_free_pages()"""
    torch_kernels: bool
    """the paged allocator has a torch path for a CPU (0.5.22)"""
    cursor_methods: bool
    """ReqKvInfo.set_evicted_seqlen(component, n); else the field swa_evicted_seqlen (0.5.21)"""
    window_eviction_method: bool
    """the cache's evict_sliding_windows; else common.free_swa_out_of_window_slots (0.5.21)"""
    checkpoint: bool
    """common.checkpoint_kv_cache; else cache.cache_unfinished_req (0.5.22)"""
    release_checkpoint: bool
    """release_kv_cache(checkpoint=); else is_insert= (0.5.22)"""
    lock: bool
    """the cache's lock(node); else inc_lock_ref (0.5.22)"""
    prefix_indices_method: bool
    """the cache's prefix_device_indices(req); else MatchResult.device_indices (0.5.22)"""
    private_load: bool
    """a load's slots stay the request's until its checkpoint (0.5.22); else they are inserted at once"""
    gates_parameter: bool
    """CacheInitParams.swa_gates_prefix_match (0.5.23)"""
    linker: bool
    """an external linker's wrapper (0.5.19)"""


def ask_features(tree: SimpleNamespace) -> Features:
    """`tree` has the attributes of stress.engine.sglang.tree_import.Tree."""
    allocator, cache = tree.SWATokenToKVPoolAllocator, tree.UnifiedRadixCache
    return Features(
        segment_free=hasattr(allocator, "free_swa_segment"),
        full_segment_free=hasattr(allocator, "free_full_segment"),
        ring="req_to_token_pool" in _parameters(allocator.__init__),
        free_list_method=hasattr(tree.PagedTokenToKVPoolAllocator, "get_all_free_pages"),
        torch_kernels=hasattr(tree.paged, "alloc_decode_naive"),
        cursor_methods=hasattr(tree.ReqKvInfo, "set_evicted_seqlen"),
        window_eviction_method=hasattr(cache, "evict_sliding_windows"),
        checkpoint=hasattr(tree.common, "checkpoint_kv_cache"),
        release_checkpoint="checkpoint" in _parameters(tree.common.release_kv_cache),
        lock=hasattr(cache, "lock"),
        prefix_indices_method=hasattr(cache, "prefix_device_indices"),
        private_load=hasattr(cache, "load_back_is_cache_owned"),
        gates_parameter="swa_gates_prefix_match" in tree.CacheInitParams.__dataclass_fields__,
        linker=tree.unified_cache_linker is not None,
    )


def _parameters(function: Any) -> Any:
    return inspect.signature(function).parameters
