"""Builds vLLM's own scheduler of one rank, with its KV-cache manager, from a resolved configuration and a tree.

With a linker the scheduler makes its connector, by the tree's own factory: that of the CPU offload.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from stress.engine.vllm.build import HOST_POOLS, cache_config
from stress.engine.vllm.calls import Calls
from stress.engine.vllm.driven import DrivenEngine
from stress.engine.vllm.driven_settings import (
    NoGrammar,
    Settings,
    TextOnly,
    connector_settings,
    scheduler_settings,
)
from stress.engine.vllm.features import accepted
from stress.engine.vllm.injections import Injections
from stress.engine.vllm.transfers import Transfers
from stress.engine.vllm.tree_import import VllmTree, load_tree
from stress.engine.vllm.worker_side import Workers
from stress.pool_groups import groups_of


def build_driven(config, root: Path, rank: int = 0) -> DrivenEngine:
    """`config`: stress.config.Config. Raises ValueError for what this engine can't be, one line with the cure."""
    tree = load_tree(root, scheduler=True)
    where = f"{root}: the scheduler of vllm {tree.version}"
    if config.workload.ballast:
        raise ValueError(f"{where} decides whose pages are on loan; set workload.ballast=0")
    groups = groups_of(config.pool)
    sizes = [group.page_size for group in groups]
    if len(set(sizes)) > 1 and not tree.features.mixed_block_sizes:
        raise ValueError(f"{root}: vllm {tree.version} has groups of one block size; give pool.groups one")
    serving, blocks = config.serving, config.pool.full_pages + config.pool.swa_pages + 1
    cache = cache_config(tree, groups, blocks)
    if config.linker.enabled and not tree.features.simple_offload:
        raise ValueError(f"{where} has no CPU offload; set linker.enabled=false, or use 0.20 or later")
    settings = scheduler_settings(
        serving,
        blocks=blocks,
        block_size=math.lcm(*sizes),
        max_tokens=blocks * max(sizes),
        connector=_connector(config.linker, cache),
        workers=config.linker.workers,
    )
    kind = tree.scheduler.Scheduler
    wanted = {
        "vllm_config": settings,
        "kv_cache_config": cache,
        "structured_output_manager": NoGrammar(),
        "block_size": math.lcm(*sizes),
        "hash_block_size": math.gcd(*sizes),
        "mm_registry": TextOnly(),
        "log_stats": False,
    }
    scheduler = kind(**accepted(kind, **wanted))
    calls = Calls(tree, scheduler.kv_cache_manager, groups, config.pool.page_size, serving.chunk_tokens)
    return DrivenEngine(calls, scheduler, _transfers(config, calls, scheduler, rank))


def _told_by_request(tree: VllmTree) -> bool:
    """Whether a worker can tell that a request's load has failed, and not only which pages did not come."""
    return "failed_recving" in tree.outputs.KVConnectorOutput.__dataclass_fields__


def _connector(linker, cache: Any) -> Settings | None:
    if not linker.enabled:
        return None
    host_pages = linker.host_pages or HOST_POOLS * cache.num_blocks
    page_bytes = -(-sum(tensor.size for tensor in cache.kv_cache_tensors) // cache.num_blocks)
    return connector_settings(linker, host_pages=host_pages, page_bytes=page_bytes)


def _transfers(config, calls: Calls, scheduler: Any, rank: int) -> Transfers | None:
    linker = config.linker
    if not linker.enabled:
        return None
    step_us = round(config.serving.step_base_ms * 1000)
    workers = Workers(
        calls.tree,
        Injections(config.injections, seed=config.seed, rank=rank, step_us=step_us),
        calls.pages_of,
        delay_us=round(linker.delay_ms * 1000),
        stores_wait=linker.stores_wait,
        workers=linker.workers,
        by_page=len(calls.groups) == 1,
        by_request=_told_by_request(calls.tree),
    )
    return Transfers(calls, scheduler, workers, linker.workers)
