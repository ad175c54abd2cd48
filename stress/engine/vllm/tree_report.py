"""`python -m stress.engine.vllm.tree_report ROOT`: what a tree can do, as one JSON document on stdout.

Run in a process of its own, because a process imports one tree. An error of the tree is {"error": "..."}.
"""

from __future__ import annotations

import importlib.machinery
import sys
import time
from pathlib import Path
from typing import Any

import msgspec

from stress.engine.tree_error import tell
from stress.engine.vllm.features import accepted
from stress.engine.vllm.tree_import import VllmTree, load_tree

_PAGE_SIZE = 16
_PAGES = 9
GROUP_KINDS = {
    "full": ("FullAttentionSpec", {}),
    "sliding_window": ("SlidingWindowSpec", {"sliding_window": 2 * _PAGE_SIZE}),
    "chunked_local": ("ChunkedLocalAttentionSpec", {"attention_chunk_size": 2 * _PAGE_SIZE}),
}
NEEDED_FEATURES = ("external_tokens", "new_step_starts", "mixed_block_sizes")


def report_tree(root: str) -> dict[str, Any]:
    """Version, features, substitutes, the kinds of groups a manager can be built of, and whether it is usable.

    Usable: an engine can be made of it, that is, it has NEEDED_FEATURES and a manager of full attention and of
    a sliding window. Raises TreeError.
    """
    started = time.perf_counter()
    tree = load_tree(root)
    seconds = time.perf_counter() - started
    features = msgspec.to_builtins(tree.features)
    kinds = [kind for kind in GROUP_KINDS if _is_built(tree, kind)]
    return {
        "version": tree.version,
        "root": str(tree.root),
        "installed": _is_installed(tree.root),
        "import_s": round(seconds, 2),
        "features": features,
        "group_kinds": kinds,
        "substitutes": list(tree.substitutes),
        "stand_ins": len(tree.stand_ins),
        "usable": all(features[name] for name in NEEDED_FEATURES) and {"full", "sliding_window"} <= {*kinds},
    }


def _is_installed(root: Path) -> bool:
    """Whether `import vllm` would find this tree without us."""
    spec = importlib.machinery.PathFinder.find_spec("vllm")
    return spec is not None and spec.origin is not None and Path(spec.origin).resolve().parents[1] == root


def _is_built(tree: VllmTree, kind: str) -> bool:
    """Whether a manager of full attention and this kind can be built, and has every page but the null page free."""
    try:
        return _small_manager(tree, kind).block_pool.get_num_free_blocks() == _PAGES - 1
    except Exception:
        # Whatever an edited tree fails by, there is no manager of this kind.
        return False


def _small_manager(tree: VllmTree, kind: str) -> Any:
    interface = tree.kv_cache_interface
    specs = [_spec(tree, name) for name in dict.fromkeys(["full", kind])]
    layers = [f"layer {index}" for index in range(len(specs))]
    page_bytes = specs[0].page_size_bytes
    tensor = interface.KVCacheTensor(
        **accepted(
            interface.KVCacheTensor,
            size=_PAGES * page_bytes,
            shared_by=layers,
            layers=layers,
            layer_stride=_PAGES * page_bytes,
            block_stride=page_bytes,
        )
    )
    groups = [interface.KVCacheGroupSpec([layer], spec) for layer, spec in zip(layers, specs, strict=True)]
    manager = tree.kv_cache_manager.KVCacheManager
    return manager(
        **accepted(
            manager,
            kv_cache_config=interface.KVCacheConfig(_PAGES, [tensor], groups),
            max_model_len=_PAGES * _PAGE_SIZE,
            hash_block_size=_PAGE_SIZE,
            scheduler_block_size=_PAGE_SIZE,
            max_num_batched_tokens=_PAGE_SIZE,
            max_in_flight_tokens=_PAGE_SIZE,
            enable_caching=True,
        )
    )


def _spec(tree: VllmTree, kind: str) -> Any:
    name, extra = GROUP_KINDS[kind]
    shape = {"block_size": _PAGE_SIZE, "num_kv_heads": 1, "head_size": 1, "dtype": tree.torch.float16}
    return getattr(tree.kv_cache_interface, name)(**shape, **extra)


if __name__ == "__main__":
    sys.exit(tell(lambda: report_tree(sys.argv[1])))
