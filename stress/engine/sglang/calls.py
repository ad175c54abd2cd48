"""Upstream's calls, one method for what a scheduler does, across releases.

Owns the tree's objects of one rank and the word for the step that goes on (`step`), for histories. The order of
calls inside a method is upstream's scheduler's; the sources are named where they stand. Nothing here decides.
"""

from __future__ import annotations

import inspect
from typing import Any

import torch

from stress.engine.sglang.request import SglangRequest
from stress.engine.sglang.tree_import import Tree


class Calls:
    """`linker`: what stress.engine.sglang.external_linker made, or None."""

    def __init__(
        self, tree: Tree, allocator: Any, cache: Any, rows: Any, linker: Any, window_tokens: int
    ) -> None:
        self.tree, self.features = tree, tree.features
        self.allocator, self.cache, self.rows, self.linker = allocator, cache, rows, linker
        self.window_tokens = window_tokens
        self.page_size = allocator.page_size
        self.device = torch.device(allocator.device)
        self.swa = tree.ComponentType.SWA
        self.step = ""
        self._window_interval = self.features.window_eviction_method and (
            "eviction_interval" in inspect.signature(cache.evict_sliding_windows).parameters
        )
        self._name_evictions()

    def new_kv(self) -> Any:
        return self.tree.ReqKvInfo()

    def _name_evictions(self) -> None:
        """`step` says which component is evicted while one is: the walk's own method is wrapped on this instance."""
        walk = self.cache._evict_device_next_node
        leaf = self.cache._evict_device_leaf
        steps = {self.swa: "SWA eviction"}

        def next_node(component_type, tracker):
            return self._during(steps.get(component_type, "cache eviction"), walk, component_type, tracker)

        def evict_leaf(node_id, tracker):
            return self._during("cache eviction", leaf, node_id, tracker)

        self.cache._evict_device_next_node = next_node
        self.cache._evict_device_leaf = evict_leaf

    def _during(self, step: str, call, *arguments, **keywords):
        before, self.step = self.step, step
        try:
            return call(*arguments, **keywords)
        finally:
            self.step = before

    # Admission: match_kv_cache, the node's lock, init_load_back (schedule_policy.py)

    def match(self, request: SglangRequest) -> None:
        cache, tree = self.cache, self.tree
        key = tree.RadixKey(
            token_ids=request.full_untruncated_fill_ids, extra_key=request.extra_key, limit=request.seqlen - 1
        )
        hit = cache.match_prefix(tree.base_prefix_cache.MatchPrefixParams(key=key, req=request))
        indices = getattr(hit, "device_indices", None)
        request.prefix_indices = torch.empty(0, dtype=torch.int64) if indices is None else indices
        device_len = getattr(hit, "device_prefix_len", None)
        request.prefix_len = len(request.prefix_indices) if device_len is None else device_len
        request.last_node, request.best_match_node = hit.last_device_node, hit.best_match_node
        request.host_hit_length = hit.host_hit_length
        request.swa_host_hit_length = hit.swa_host_hit_length
        request.swa_branching_seqlen = getattr(hit, "swa_branching_seqlen", None)
        request.kv.cache_protected_len = request.prefix_len

    def lock(self, request: SglangRequest) -> None:
        if self.features.lock:
            request.lock = self.cache.lock(request.last_node)
        else:
            request.lock_receipt = self.cache.inc_lock_ref(request.last_node).to_dec_params()

    def _unlock(self, request: SglangRequest, node: Any) -> None:
        if self.features.lock:
            self.cache.unlock(request.lock)
            request.lock = None
        else:
            self.cache.dec_lock_ref(node, request.lock_receipt)
            request.lock_receipt = None

    def refuse(self, request: SglangRequest) -> None:
        """Admission fails: nothing stays held."""
        self._unlock(request, request.last_node)
        if self.linker is not None:
            self.cache.linker.release_request(request.rid)

    def load_back(self, request: SglangRequest) -> int:
        """Tokens that come from the linker, 0 if upstream falls back to computing them."""
        node = request.last_node
        params = self.tree.base_prefix_cache.InitLoadBackParams(
            best_match_node=request.best_match_node, host_hit_length=request.host_hit_length, req=request
        )
        got, last_node = self._during("linker load", self.cache.init_load_back, params)
        if isinstance(got, torch.Tensor):
            # Up to 0.5.21 a load is in the tree at once, and what is locked is its end.
            request.prefix_indices = torch.cat([request.prefix_indices, got])
            loaded = len(got)
            request.prefix_len += loaded
            request.kv.cache_protected_len = request.prefix_len
        else:
            loaded = got
            request.prefix_len += loaded
            if self.cache.load_back_is_cache_owned():
                request.kv.cache_protected_len = request.prefix_len
        if last_node != node:
            self._unlock(request, node)
            request.last_node = last_node
            self.lock(request)
        return loaded

    def take_row(self, request: SglangRequest) -> None:
        """A row of the request pool, and the prefix in it (alloc_for_extend)."""
        if self.features.prefix_indices_method:
            prefix = self.cache.prefix_device_indices(request)
        else:
            prefix = request.prefix_indices
        self.rows.alloc([request])
        self.rows.write((request.kv.req_pool_idx, slice(0, request.prefix_len)), prefix.to(torch.int32))
        request.kv.kv_allocated_len = request.kv.kv_committed_len = request.prefix_len

    # Slots: evict_from_tree_cache, alloc_paged_token_slots_extend, the row's write

    def lengthen(self, batch: list[tuple[SglangRequest, int]], step: str) -> bool:
        """Slots [allocated, upto) for all or none. Upstream would raise; here the scheduler is told."""
        batch = [(request, upto) for request, upto in batch if upto > request.kv.kv_allocated_len]
        if not batch:
            return True
        page_size = self.page_size
        prefix = torch.tensor([request.kv.kv_allocated_len for request, _ in batch], dtype=torch.int64)
        upto = torch.tensor([end for _, end in batch], dtype=torch.int64)
        tokens = int((upto - prefix).sum())
        self.tree.common.evict_from_tree_cache(self.cache, tokens + len(batch) * page_size)
        new_pages = int((-(-upto // page_size) - -(-prefix // page_size)).sum())
        if new_pages * page_size > self.allocator.available_size():
            return False
        out = self._during(
            step,
            self.tree.allocation.alloc_paged_token_slots_extend,
            self.cache,
            prefix.to(self.device),
            prefix,
            upto.to(self.device),
            upto,
            self._last_slots(batch),
            tokens,
        ).to(torch.int32)
        taken = 0
        for request, end in batch:
            start = request.kv.kv_allocated_len
            self.rows.write((request.kv.req_pool_idx, slice(start, end)), out[taken : taken + end - start])
            taken += end - start
            request.kv.kv_allocated_len = end
        return True

    def _last_slots(self, batch: list[tuple[SglangRequest, int]]) -> torch.Tensor:
        table = self.rows.req_to_token
        last = [
            table[request.kv.req_pool_idx, request.kv.kv_allocated_len - 1]
            if request.kv.kv_allocated_len
            else torch.tensor(-1, dtype=table.dtype, device=self.device)
            for request, _ in batch
        ]
        return torch.stack(last).to(torch.int64)

    def room(self) -> tuple[int, int]:
        """Tokens that an allocation could get after eviction: (FULL, SWA)."""
        full = self.allocator.full_available_size() + self.cache.full_evictable_size()
        return full, self.allocator.swa_available_size() + self.cache.swa_evictable_size()

    def evict(self, full_tokens: int, swa_tokens: int) -> None:
        self.cache.evict(
            self.tree.base_prefix_cache.EvictParams(num_tokens=full_tokens, swa_num_tokens=swa_tokens)
        )

    # Results

    @property
    def tells_failed_loads(self) -> bool:
        """From 0.5.22 on; before that the poll takes loads in, and one that failed counts as one that landed."""
        return hasattr(self.cache, "finish_external_linker_loads")

    def finish_loads(self) -> list[str]:
        """After the forward pass and before its results: requests whose load failed; one fails all of its batch."""
        return self.cache.linker.finish_loads() if self.tells_failed_loads else []

    def checkpoint(self, request: SglangRequest) -> None:
        if self.features.checkpoint:
            self._during("insert", self.tree.common.checkpoint_kv_cache, request, self.cache)
        else:
            self._during("insert", self.cache.cache_unfinished_req, request, chunked=True)

    def evict_window(self, request: SglangRequest, interval_tokens: int) -> None:
        """The SWA side of what left the window, as `maybe_evict_swa` asks for it."""
        written = request.seqlen - 1
        if self.features.window_eviction_method:
            # The scheduler has gated by the interval already; upstream passes 1 then.
            keywords = {"eviction_interval": 1} if self._window_interval else {}
            self._during("window", self.cache.evict_sliding_windows, request, written, **keywords)
            return
        self._during(
            "window",
            self.tree.common.free_swa_out_of_window_slots,
            request,
            written,
            sliding_window_size=self.window_tokens,
            page_size=self.page_size,
            req_to_token_pool=self.rows,
            token_to_kv_pool_allocator=self.allocator,
        )

    def release(self, request: SglangRequest, *, checkpoint: bool) -> None:
        """release_kv_cache, and the linker's own record of the request."""
        kv = request.kv
        if kv.kv_allocated_len == 0:
            # Upstream takes a row together with its first slots: a row without any is only ours to give back.
            self.refuse(request)
            self.rows.free(request)
            return
        request.is_done = checkpoint
        self.tree.config.speculative_algorithm = (
            "EAGLE" if kv.kv_allocated_len > kv.kv_committed_len else None
        )
        keyword = "checkpoint" if self.features.release_checkpoint else "is_insert"
        if self.linker is not None:
            self.cache.linker.release_request(request.rid)
        try:
            self._during(
                "release", self.tree.common.release_kv_cache, request, self.cache, **{keyword: checkpoint}
            )
        finally:
            self.tree.config.speculative_algorithm = None
