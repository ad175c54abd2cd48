"""Builds the engine over LMCache's paged allocator of one rank from a resolved configuration and a tree's folder.

One pool of `pool.full_pages` pages of `pool.page_size` tokens, in host memory on every device. What else [pool] says is
about a window, which there is none of; a linker is refused when the configuration is read.
"""

from __future__ import annotations

from pathlib import Path

from allocator.faults.log import NO_FAULTS, FaultLog, with_faults
from stress.engine.contract import Warm
from stress.engine.lmcache.engine import LMCacheEngine
from stress.engine.lmcache.faults import CLIENT_FAULTS
from stress.engine.lmcache.pool import PagePool
from stress.engine.lmcache.tree_import import load_tree
from stress.serving.ballast import ROWS as BALLAST_ROWS


def build_lmcache(
    config, arm, root: Path, device: str, warm: Warm | None, rank: int = 0, faults: FaultLog = NO_FAULTS
) -> LMCacheEngine:
    """`config`: stress.config.Config; `faults`: what is wrong with the pool's client. Raises TreeError, one line."""
    pool = PagePool(load_tree(root), config.pool.full_pages, config.pool.page_size)
    max_rows = config.serving.max_running + (BALLAST_ROWS if config.workload.ballast else 0)
    return with_faults(LMCacheEngine, CLIENT_FAULTS, faults)(pool, max_rows)
