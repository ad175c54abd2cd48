"""Builds vLLM's own scheduler of one rank, with its KV-cache manager, from a resolved configuration and a tree."""

from __future__ import annotations

import math
from pathlib import Path

from stress.engine.vllm.build import cache_config
from stress.engine.vllm.calls import Calls
from stress.engine.vllm.driven import DrivenEngine
from stress.engine.vllm.driven_settings import NoGrammar, TextOnly, scheduler_settings
from stress.engine.vllm.features import accepted
from stress.engine.vllm.tree_import import load_tree
from stress.pool_groups import groups_of


def build_driven(config, root: Path) -> DrivenEngine:
    """`config`: stress.config.Config. Raises ValueError for what this engine can't be, one line with the cure."""
    tree = load_tree(root, scheduler=True)
    where = f"{root}: the scheduler of vllm {tree.version}"
    if config.linker.enabled:
        raise ValueError(f"{where} is driven without a connector; set linker.enabled=false")
    if config.workload.ballast:
        raise ValueError(f"{where} decides whose pages are on loan; set workload.ballast=0")
    groups = groups_of(config.pool)
    sizes = [group.page_size for group in groups]
    if len(set(sizes)) > 1 and not tree.features.mixed_block_sizes:
        raise ValueError(f"{root}: vllm {tree.version} has groups of one block size; give pool.groups one")
    serving, blocks = config.serving, config.pool.full_pages + config.pool.swa_pages + 1
    settings = scheduler_settings(
        serving, blocks=blocks, block_size=math.lcm(*sizes), max_tokens=blocks * max(sizes)
    )
    kind = tree.scheduler.Scheduler
    wanted = {
        "vllm_config": settings,
        "kv_cache_config": cache_config(tree, groups, blocks),
        "structured_output_manager": NoGrammar(),
        "block_size": math.lcm(*sizes),
        "hash_block_size": math.gcd(*sizes),
        "mm_registry": TextOnly(),
        "log_stats": False,
    }
    scheduler = kind(**accepted(kind, **wanted))
    calls = Calls(tree, scheduler.kv_cache_manager, groups, config.pool.page_size, serving.chunk_tokens)
    return DrivenEngine(calls, scheduler)
