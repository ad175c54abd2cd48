"""The tree's own FULL + SWA allocator over a pool without tensors: the one place that knows its constructor."""

from __future__ import annotations

from typing import Any

import torch

from stress.engine.sglang.null_kv_pool import null_kv_pool
from stress.engine.sglang.tree_import import Tree


def page_allocator(
    tree: Tree,
    full_tokens: int,
    swa_tokens: int,
    page_size: int,
    *,
    device: str = "cpu",
    rows: Any = None,
    ring_tokens: int | None = None,
) -> Any:
    """A SWATokenToKVPoolAllocator. `rows`: the request pool, which a tree that knows rings takes; sizes in tokens."""
    keywords = {"req_to_token_pool": rows} if rows is not None and tree.features.ring else {}
    return tree.SWATokenToKVPoolAllocator(
        size=full_tokens,
        size_swa=swa_tokens,
        page_size=page_size,
        dtype=torch.bfloat16,
        device=device,
        kvcache=null_kv_pool(tree, ring_tokens),
        need_sort=False,
        **keywords,
    )
