"""Run as a script, with a tree's root: imports the tree and prints what test_tree_import asks."""

import gc
import json
import logging
import sys
from pathlib import Path

from stress.engine.lmcache.pool import PagePool
from stress.engine.lmcache.tree_import import load_tree
from stress.engine.stand_in import StandInUsed
from stress.engine.tree_error import TreeError


def main(root: str) -> None:
    before, loggers = set(sys.modules), set(logging.root.manager.loggerDict)
    tree = load_tree(root)
    new = {name for name in sys.modules if name not in before}
    pool = PagePool(tree, 8, 16)
    pages = pool.lend(3)
    print(
        json.dumps(
            {
                "version": tree.version,
                "substitutes": tree.substitutes,
                "stand_ins": tree.stand_ins,
                "left_in_process": sorted(name for name in new if name.split(".")[0] != "lmcache"),
                "files": sorted(
                    {str(module.__file__).startswith(root) for module in (tree.paged, tree.memory_management)}
                ),
                "loggers": sorted(set(logging.root.manager.loggerDict) - loggers),
                "same_again": load_tree(root) is tree,
                "other_root": refusal(lambda: load_tree("/"), TreeError),
                "pinned": refusal(pages[0].pin, StandInUsed),
                "page_bytes": [pool.page_bytes, pages[0].get_size()],
                "numbers": [pool.page_of(page) for page in pages],
                "room": [pool.free_pages(), pool.lend(6) is None, pool.free_pages()],
                "collected": collected(tree),
            }
        )
    )


def collected(tree) -> list[int]:
    """Addresses of what is freed when a pool is dropped with a page on loan."""
    kind, freed = tree.paged.PagedTensorMemoryAllocator, []
    correct, kind.free = kind.free, lambda self, page: freed.append(page.meta.address)
    pool = PagePool(tree, 2, 16)
    held = pool.lend(1)
    del pool, held
    gc.collect()
    kind.free = correct
    return freed


def refusal(call, kind) -> str:
    try:
        call()
    except kind as error:
        return str(error)
    return "not refused"


if __name__ == "__main__":
    main(str(Path(sys.argv[1]).resolve()))
