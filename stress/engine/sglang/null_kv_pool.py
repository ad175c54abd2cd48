"""A KV pool without tensors: the allocator's bookkeeping needs a BaseSWAKVPool, and no cache contents."""

from __future__ import annotations

from typing import Any

from stress.engine.sglang.tree_import import Tree


def null_kv_pool(tree: Tree, ring_size: int | None = None) -> Any:
    """An instance of the tree's BaseSWAKVPool. `ring_size`: slots a request's SWA ring has; None for paged SWA."""
    base = tree.BaseSWAKVPool
    members: dict[str, Any] = {name: _nothing for name in base.__abstractmethods__}
    members |= {
        "__init__": _nothing,
        "register_mapping": _register_mapping,
        "translate_loc_from_full_to_swa": lambda self, slots: self.full_to_swa_index_mapping[slots],
        "full_kv_pool": None,
        "swa_kv_pool": None,
        "swa_req_ring_size": ring_size,
    }
    return type("NullKVPool", (base,), members)()


def _nothing(self: Any, *args: Any, **kwargs: Any) -> None:
    """No tensor is kept, so none is moved."""


def _register_mapping(self: Any, mapping: Any) -> None:
    self.full_to_swa_index_mapping = mapping
