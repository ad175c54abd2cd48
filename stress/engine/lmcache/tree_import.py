"""load_tree(root): the paged allocator of one LMCache tree, imported into this process with the process's torch.

A process imports one tree; a rank is a process. No module of it may ask a module that is not imported anything
(StandInUsed). What is replaced of a tree is listed in LMCacheTree.substitutes: see substitutes.
"""

from __future__ import annotations

import importlib
import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType, SimpleNamespace

from stress.engine.lmcache.substitutes import keep_collected, replace_names
from stress.engine.lmcache.tree_finder import PAGED, tree_finder, tree_packages
from stress.engine.stand_in import seal
from stress.engine.tree_error import TreeError


@dataclass(frozen=True)
class LMCacheTree:
    """One imported tree."""

    root: Path
    version: str
    substitutes: tuple[str, ...]
    stand_ins: tuple[str, ...]
    """Modules that were not imported, for a report."""

    memory_management: ModuleType
    paged: ModuleType
    """lmcache.v1.memory_allocators.paged_tensor_memory_allocator"""


_loaded: LMCacheTree | None = None


def load_tree(root: Path | str) -> LMCacheTree:
    """The tree below `root`, the folder that holds `lmcache/`; the same one when asked again.

    Raises TreeError: no such tree there, or another one is imported in this process.
    """
    global _loaded
    root = Path(root).resolve()
    if _loaded is None:
        _refuse_unfit(root)
        _loaded = _import_tree(root)
    elif _loaded.root != root:
        raise TreeError(
            f"{root}: this process has imported {_loaded.root}; load each tree in its own process"
        )
    return _loaded


def _refuse_unfit(root: Path) -> None:
    if not (root / "lmcache" / "v1").is_dir():
        raise TreeError(f"{root}: holds no lmcache/v1; name the folder that holds lmcache/")
    if not root.joinpath(*PAGED.split(".")).with_suffix(".py").is_file():
        raise TreeError(f"{root}: has no {PAGED}; use an LMCache that has it, as 0.5.6")
    if "lmcache" in sys.modules:
        raise TreeError(
            f"{root}: lmcache is imported in this process already; load a tree in a fresh process"
        )


def _import_tree(root: Path) -> LMCacheTree:
    packages = tree_packages()
    finder = tree_finder(root, packages)
    sys.meta_path.insert(0, finder)
    try:
        found = _import_modules(root)
    except BaseException:
        sys.meta_path.remove(finder)
        for name in [name for name in sys.modules if name.split(".", 1)[0] == "lmcache"]:
            del sys.modules[name]
        raise
    seal()
    return LMCacheTree(root=root, stand_ins=(*finder.stand_ins, *packages.stand_ins), **vars(found))


def _import_modules(root: Path) -> SimpleNamespace:
    try:
        replaced = replace_names()
        memory_management = importlib.import_module("lmcache.v1.memory_management")
        paged = importlib.import_module(PAGED)
        version = importlib.import_module("lmcache._version").__version__
    except ModuleNotFoundError as error:
        raise TreeError(f"{root}: has no {error.name}; use LMCache 0.5.6") from error
    return SimpleNamespace(
        version=version,
        memory_management=memory_management,
        paged=paged,
        substitutes=(*replaced, keep_collected(memory_management)),
    )
