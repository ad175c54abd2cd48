"""Builds vLLM's KV-cache manager of one rank from a resolved configuration and the folder of a tree.

One pool of blocks for all groups of layers: `pool.full_pages + pool.swa_pages` of them, and the null block. The groups
are `pool.groups`, or where that is empty one of full attention and one with a window of `pool.window_tokens`.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from allocator.faults.log import NO_FAULTS, FaultLog, with_faults
from stress.engine.contract import Warm
from stress.engine.groups import Group
from stress.engine.vllm.calls import Calls
from stress.engine.vllm.engine import VllmEngine
from stress.engine.vllm.faults import CALLS_FAULTS, ENGINE_FAULTS, OFFLOAD_FAULTS
from stress.engine.vllm.features import accepted
from stress.engine.vllm.offload import Offload
from stress.engine.vllm.tree_import import VllmTree, load_tree
from stress.pool_groups import groups_of
from stress.serving.ballast import ROWS as BALLAST_ROWS

HOST_POOLS = 2  # the host holds so many times the pool's blocks where nothing else is said


def build_vllm(
    config, arm, root: Path, device: str, warm: Warm | None, rank: int = 0, faults: FaultLog = NO_FAULTS
) -> VllmEngine:
    """`config`: stress.config.Config; `faults`: what is wrong with it. Raises ValueError for what this engine can't be,
    one line with the cure."""
    tree = load_tree(root)
    groups = groups_of(config.pool)
    if len({group.page_size for group in groups}) > 1 and not tree.features.mixed_block_sizes:
        raise ValueError(f"{root}: vllm {tree.version} has groups of one block size; give pool.groups one")
    blocks = config.pool.full_pages + config.pool.swa_pages + 1
    cache = cache_config(tree, groups, blocks)
    tokens = blocks * max(group.page_size for group in groups)
    manager = _manager(tree, cache, groups, tokens, config.serving.chunk_tokens)
    built = with_faults(Calls, CALLS_FAULTS, faults)
    calls = built(tree, manager, groups, config.pool.page_size, config.serving.chunk_tokens)
    offload = _offload(calls, cache, config.linker, f"{root}: vllm {tree.version}", faults)
    max_rows = config.serving.max_running + (BALLAST_ROWS if config.workload.ballast else 0)
    return with_faults(VllmEngine, ENGINE_FAULTS, faults)(calls, offload, max_rows=max_rows)


def _offload(calls: Calls, cache: Any, linker, tree: str, faults: FaultLog) -> Offload | None:
    if not linker.enabled:
        return None
    if not calls.tree.features.simple_offload:
        raise ValueError(f"{tree} has no CPU offload; set linker.enabled=false, or use 0.20 or later")
    host_pages = linker.host_pages or HOST_POOLS * cache.num_blocks
    return with_faults(Offload, OFFLOAD_FAULTS, faults)(
        calls,
        cache,
        host_pages=host_pages,
        delay_us=round(linker.delay_ms * 1000),
        stores_wait=linker.stores_wait,
    )


def _manager(tree: VllmTree, cache: Any, groups: tuple[Group, ...], tokens: int, chunk_tokens: int) -> Any:
    manager = tree.kv_cache_manager.KVCacheManager
    sizes = [group.page_size for group in groups]
    wanted = {
        "kv_cache_config": cache,
        "max_model_len": tokens,
        "hash_block_size": math.gcd(*sizes),
        "scheduler_block_size": math.lcm(*sizes),
        "max_num_batched_tokens": chunk_tokens,
        "max_in_flight_tokens": chunk_tokens,
        "enable_caching": True,
        "use_eagle": False,
        "log_stats": False,
    }
    return manager(**accepted(manager, **wanted))


def cache_config(tree: VllmTree, groups: tuple[Group, ...], blocks: int) -> Any:
    """A KVCacheConfig of one layer a group; its tensors are sizes, nothing is allocated."""
    interface = tree.kv_cache_interface
    specs = [_spec(tree, group) for group in groups]
    names = [f"layer.{group.name}" for group in groups]
    built = [
        interface.KVCacheGroupSpec(layer_names=[name], kv_cache_spec=spec)
        for name, spec in zip(names, specs, strict=True)
    ]
    block_bytes = specs[0].page_size_bytes
    fields = interface.KVCacheTensor.__dataclass_fields__
    wanted = {
        "size": blocks * block_bytes,
        "shared_by": names,
        "layers": names,
        "offset": 0,
        "layer_stride": blocks * block_bytes,
        "block_stride": block_bytes,
    }
    tensor = interface.KVCacheTensor(**{name: value for name, value in wanted.items() if name in fields})
    return interface.KVCacheConfig(num_blocks=blocks, kv_cache_tensors=[tensor], kv_cache_groups=built)


def _spec(tree: VllmTree, group: Group) -> Any:
    interface = tree.kv_cache_interface
    wanted = {
        "block_size": group.page_size,
        "num_kv_heads": 1,
        "head_size": 1,
        "dtype": tree.torch.float16,
        "use_mla": False,
    }
    if group.window:
        spec, wanted["sliding_window"] = interface.SlidingWindowSpec, group.window
    elif group.chunk:
        spec, wanted["attention_chunk_size"] = interface.ChunkedLocalAttentionSpec, group.chunk
    else:
        spec = interface.FullAttentionSpec
    return spec(**accepted(spec, **wanted))
