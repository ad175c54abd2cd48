"""`python -m stress.engine.lmcache.tree_report ROOT`: what a tree can do, as one JSON document on stdout.

Run in a process of its own, because a process imports one tree. An error of the tree is {"error": "..."}.
"""

from __future__ import annotations

import importlib.machinery
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from stress.engine.lmcache.pool import PagePool
from stress.engine.lmcache.tree_import import LMCacheTree, load_tree
from stress.engine.tree_error import tell

_PAGES, _PAGE_SIZE = 4, 16


def report_tree(root: str) -> dict[str, Any]:
    """Version, features, substitutes, and whether it is usable: pages are lent in batches and come back by count.

    features.second_free_refused: a page that is given up twice is on the free list once. Raises TreeError.
    """
    started = time.perf_counter()
    tree = load_tree(root)
    seconds = time.perf_counter() - started
    features = {
        "batched_allocate": _holds(_is_lent_in_batches, tree),
        "reference_counts": _holds(_comes_back_with_the_last, tree),
        "second_free_refused": _holds(_comes_back_once, tree),
    }
    return {
        "version": tree.version,
        "root": str(tree.root),
        "installed": _is_installed(tree.root),
        "import_s": round(seconds, 2),
        "features": features,
        "substitutes": list(tree.substitutes),
        "stand_ins": len(tree.stand_ins),
        "usable": features["batched_allocate"] and features["reference_counts"],
    }


def _is_installed(root: Path) -> bool:
    """Whether `import lmcache` would find this tree without us."""
    spec = importlib.machinery.PathFinder.find_spec("lmcache")
    return spec is not None and spec.origin is not None and Path(spec.origin).resolve().parents[1] == root


def _holds(feature: Callable[[PagePool], bool], tree: LMCacheTree) -> bool:
    """Of a pool of its own. Whatever an edited tree fails by, it has not got the feature."""
    try:
        return feature(PagePool(tree, _PAGES, _PAGE_SIZE))
    except Exception:
        return False


def _is_lent_in_batches(pool: PagePool) -> bool:
    """More than there are is refused, and takes none; then all of them are lent."""
    return pool.lend(_PAGES + 1) is None and len(pool.lend(_PAGES)) == _PAGES


def _comes_back_with_the_last(pool: PagePool) -> bool:
    (page,) = pool.lend(1)
    page.ref_count_up()
    pool.give_up([page])
    held = pool.free_pages()
    pool.give_up([page])
    return (held, pool.free_pages()) == (_PAGES - 1, _PAGES)


def _comes_back_once(pool: PagePool) -> bool:
    (page,) = pool.lend(1)
    pool.give_up([page, page])
    return pool.free_pages() == _PAGES


if __name__ == "__main__":
    sys.exit(tell(lambda: report_tree(sys.argv[1])))
