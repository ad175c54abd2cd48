"""`python -m stress.engine.sglang.tree_report ROOT`: what a tree can do, as one JSON document on stdout.

Run in a process of its own, because a process imports one tree. An error of the tree is {"error": "..."}.
"""

from __future__ import annotations

import os
import sys
import time
from typing import Any

import msgspec

from stress.engine.sglang.page_allocator import page_allocator
from stress.engine.sglang.tree_import import (
    TREE_CORE_VARIABLE,
    TREE_CORES,
    Tree,
    load_tree,
    tree_core_of,
)
from stress.engine.tree_error import tell

_PAGE_SIZE = 16
_PAGES = 8


def report_tree(root: str) -> dict[str, Any]:
    """Version, features, substitutes, the tree cores that really load, and `usable`: an engine can be made of it.

    Raises TreeError.
    """
    started = time.perf_counter()
    tree = load_tree(root)
    seconds = time.perf_counter() - started
    features = tree.features
    tree_cores = loadable_tree_cores(tree) if features.segment_free else []
    return {
        "version": tree.version,
        "root": str(tree.root),
        "installed": tree.is_installed,
        "import_s": round(seconds, 2),
        "features": msgspec.to_builtins(features),
        "tree_cores": tree_cores,
        "substitutes": list(tree.substitutes),
        "stand_ins": len(tree.stand_ins),
        "usable": features.segment_free and features.linker and bool(tree_cores),
    }


def loadable_tree_cores(tree: Tree) -> list[str]:
    """A small cache is built with each core: a tree falls back without a word where one can't be loaded."""
    asked = os.environ.get(TREE_CORE_VARIABLE)
    loaded = []
    try:
        for core in TREE_CORES:
            os.environ[TREE_CORE_VARIABLE] = core
            if tree_core_of(_small_cache(tree)) == core:
                loaded.append(core)
    finally:
        if asked is None:
            del os.environ[TREE_CORE_VARIABLE]
        else:
            os.environ[TREE_CORE_VARIABLE] = asked
    return loaded


def _small_cache(tree: Tree) -> Any:
    rows = tree.ReqToTokenPool(2, _PAGES * _PAGE_SIZE, "cpu", False)
    tokens = _PAGES * _PAGE_SIZE
    allocator = page_allocator(tree, tokens, tokens, _PAGE_SIZE, rows=rows)
    params = tree.CacheInitParams(
        disable=False,
        req_to_token_pool=rows,
        token_to_kv_pool_allocator=allocator,
        page_size=_PAGE_SIZE,
        sliding_window_size=_PAGE_SIZE,
        tree_components=(tree.ComponentType.FULL, tree.ComponentType.SWA),
    )
    return tree.UnifiedRadixCache(params)


if __name__ == "__main__":
    sys.exit(tell(lambda: report_tree(sys.argv[1])))
