"""What a tree can do, asked of its objects and never of its version: a patched tree answers for itself."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import msgspec


class Features(msgspec.Struct, frozen=True, kw_only=True):
    """Each field is True where the tree has it; the comment gives the earliest release that was asked and has it.

    Asked were 0.20.2, 0.28.0 and 0.33.0, none between.
    """

    external_tokens: bool
    """allocate_slots(num_external_computed_tokens=): tokens that a connector brings (0.20)"""
    three_part_match: bool
    """get_computed_blocks gives (blocks, tokens, shared prefix boundary); else (blocks, tokens) (0.28)"""
    new_step_starts: bool
    """the manager is told of each step (0.20)"""
    mixed_block_sizes: bool
    """groups may differ in their block size: the manager takes hash_block_size, their GCD (0.20)"""
    scheduler_block_size: bool
    """the manager takes their LCM too (0.28)"""
    max_in_flight_tokens: bool
    """the manager's bound is named so; else max_num_batched_tokens (0.28)"""
    in_flight_tokens: bool
    """a request counts tokens of steps not yet done, whose window must not slide (0.28)"""
    eagle_groups: bool
    """KVCacheGroupSpec.is_eagle_group (0.20)"""
    deferred_free: bool
    """pop_blocks_for_free: a request's blocks are taken from it now and freed later (0.28)"""
    simple_offload: bool
    """the SimpleCPUOffload connector's scheduler side is there (0.20)"""
    secondary_hashes: bool
    """BlockPool.cached_block_hashes_by_block: a block may be known by more hashes than its own (0.28)"""
    block_copies: bool
    """take_kv_cache_block_copies: a partial hit's block is copied before the forward (0.28)"""
    watermark: bool
    """the manager keeps a share of the pool free when it admits a request (0.28)"""
    reserved_blocks: bool
    """allocate_slots(reserved_blocks=): what a load must leave to requests under way (0.28)"""
    full_sequence_must_fit: bool
    """allocate_slots(full_sequence_must_fit=); else can_fit_full_sequence() (0.28)"""


def ask_features(tree: SimpleNamespace) -> Features:
    """`tree` has the modules of stress.engine.vllm.tree_import.VllmTree; stand-ins are not sealed yet."""
    manager = tree.kv_cache_manager.KVCacheManager
    built, allocates = _parameters(manager), _parameters(manager.allocate_slots)
    return Features(
        external_tokens="num_external_computed_tokens" in allocates,
        three_part_match=_match_parts(manager) == 3,
        new_step_starts=hasattr(manager, "new_step_starts"),
        mixed_block_sizes="hash_block_size" in built,
        scheduler_block_size="scheduler_block_size" in built,
        max_in_flight_tokens="max_in_flight_tokens" in built,
        in_flight_tokens=_sets(tree.request.Request, "num_in_flight_tokens"),
        eagle_groups="is_eagle_group" in _parameters(tree.kv_cache_interface.KVCacheGroupSpec),
        deferred_free=hasattr(manager, "pop_blocks_for_free"),
        simple_offload=tree.simple_offload is not None,
        secondary_hashes=hasattr(_pool(tree), "cached_block_hashes_by_block"),
        block_copies=hasattr(manager, "take_kv_cache_block_copies"),
        watermark="watermark" in built,
        reserved_blocks="reserved_blocks" in allocates,
        full_sequence_must_fit="full_sequence_must_fit" in allocates,
    )


def accepted(function: Callable[..., Any], **named: Any) -> dict[str, Any]:
    """Those of `named` that a function, or a class's constructor, takes; all of them where it takes any."""
    parameters = _parameters(function)
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
        return named
    return {name: value for name, value in named.items() if name in parameters}


def _parameters(function: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    return inspect.signature(function).parameters


def _match_parts(manager: type) -> int:
    """How many values get_computed_blocks says that it returns."""
    return len(typing.get_args(typing.get_type_hints(manager.get_computed_blocks)["return"]))


def _sets(built: type, attribute: str) -> bool:
    """Whether the constructor names the attribute: a request can't be built without its sampling parameters."""
    return attribute in built.__init__.__code__.co_names


def _pool(tree: SimpleNamespace) -> Any:
    pool = tree.block_pool.BlockPool
    return pool(**accepted(pool, num_gpu_blocks=2, enable_caching=True, hash_block_size=1))
