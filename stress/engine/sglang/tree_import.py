"""load_tree(root): the memory management of one SGLang tree, imported into this process.

A tree that Python would find by itself (an installed SGLang) is imported as any package is. Any other is
imported without its server: see tree_finder. A process imports one tree; a rank is a process. No tree is read
but this one, and no module of it may ask a module that is not imported anything (StandInUsed).
What is replaced of a tree is listed in Tree.substitutes: see substitutes.
"""

from __future__ import annotations

import importlib
import importlib.machinery
import importlib.util
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

from stress.engine.sglang.features import Features, ask_features
from stress.engine.sglang.substitutes import (
    TreeConfig,
    answer_configuration,
    replace_cpu_kernels,
    replace_page_hash,
)
from stress.engine.sglang.tree_finder import missing_finder, tree_finder
from stress.engine.stand_in import seal
from stress.engine.tree_error import TreeError

TREE_CORES = ("python", "rust")
TREE_CORE_VARIABLE = "SGLANG_UNIFIED_RADIX_TREE_CORE_BACKEND"
_CACHE = "sglang.srt.mem_cache."
_MODULES = {
    "swa": _CACHE + "allocator.swa",
    "paged": _CACHE + "allocator.paged",
    "base_swa_memory_pool": _CACHE + "base_swa_memory_pool",
    "memory_pool": _CACHE + "memory_pool",
    "unified_radix_cache": _CACHE + "unified_radix_cache",
    "cache_init_params": _CACHE + "cache_init_params",
    "base_prefix_cache": _CACHE + "base_prefix_cache",
    "common": _CACHE + "common",
    "allocation": _CACHE + "allocation",
    "component_type": _CACHE + "unified_cache.component_type",
    "hicache_storage": _CACHE + "hicache_storage",
    "radix_cache": _CACHE + "radix_cache",
    "schedule_batch": "sglang.srt.managers.schedule_batch",
}
_OPTIONAL_MODULES = {
    "unified_cache_linker": _CACHE + "unified_cache.unified_cache_linker",
    "invariants": "sglang.srt.utils.invariants",
}
_CLASSES = {
    "SWATokenToKVPoolAllocator": "swa",
    "PagedTokenToKVPoolAllocator": "paged",
    "BaseSWAKVPool": "base_swa_memory_pool",
    "ReqToTokenPool": "memory_pool",
    "UnifiedRadixCache": "unified_radix_cache",
    "CacheInitParams": "cache_init_params",
    "ComponentType": "component_type",
    "PoolName": "hicache_storage",
    "RadixKey": "radix_cache",
    "ReqKvInfo": "schedule_batch",
}


@dataclass(frozen=True)
class Tree:
    """One imported tree. Modules have their upstream names in lower case, classes in upstream's spelling."""

    root: Path
    version: str
    is_installed: bool
    features: Features
    config: TreeConfig
    """What the tree is told of a server's configuration; an engine may set it between calls."""
    substitutes: tuple[str, ...]
    stand_ins: tuple[str, ...]
    """Modules that were not imported, for a report."""

    swa: ModuleType
    paged: ModuleType
    base_swa_memory_pool: ModuleType
    memory_pool: ModuleType
    unified_radix_cache: ModuleType
    cache_init_params: ModuleType
    base_prefix_cache: ModuleType
    common: ModuleType
    allocation: ModuleType
    component_type: ModuleType
    hicache_storage: ModuleType
    radix_cache: ModuleType
    schedule_batch: ModuleType
    unified_cache_linker: ModuleType | None
    invariants: ModuleType | None

    SWATokenToKVPoolAllocator: type
    PagedTokenToKVPoolAllocator: type
    BaseSWAKVPool: type
    ReqToTokenPool: type
    UnifiedRadixCache: type
    CacheInitParams: type
    ComponentType: Any
    PoolName: Any
    RadixKey: type
    ReqKvInfo: type


_loaded: Tree | None = None


def load_tree(root: Path | str, tree_core: str | None = None) -> Tree:
    """The tree below `root`, the folder that holds `sglang/`; the same one when asked again.

    `tree_core`: python | rust, None for the tree's own default; a tree may fall back, so ask tree_core_of().
    Raises TreeError: no tree there, another tree is imported in this process, a package is missing.
    """
    global _loaded
    root = Path(root).resolve()
    if _loaded is None:
        _refuse_unfit(root, tree_core)
        if tree_core is not None:
            os.environ[TREE_CORE_VARIABLE] = tree_core
        _loaded = _import_tree(root)
    elif _loaded.root != root:
        raise TreeError(
            f"{root}: this process has imported {_loaded.root}; load each tree in its own process"
        )
    elif tree_core not in (None, os.environ.get(TREE_CORE_VARIABLE)):
        raise TreeError(
            f"tree_core {tree_core!r}: {root} was imported without it; ask for it at the first load"
        )
    return _loaded


def tree_core_of(cache: Any) -> str:
    """Which core a UnifiedRadixCache really has: python | rust."""
    return "rust" if type(cache.tree_core).__name__.startswith("Rust") else "python"


def _refuse_unfit(root: Path, tree_core: str | None) -> None:
    if tree_core not in (None, *TREE_CORES):
        raise TreeError(f"tree_core {tree_core!r}: unknown; choose {' or '.join(TREE_CORES)}")
    if not (root / "sglang" / "srt" / "mem_cache").is_dir():
        raise TreeError(f"{root}: holds no sglang/srt/mem_cache; name the folder that holds sglang/")
    if "sglang" in sys.modules and not _is_installed(root):
        raise TreeError(f"{root}: sglang is imported in this process already; load a tree in a fresh process")


def _is_installed(root: Path) -> bool:
    """Whether `import sglang` would find this tree without us."""
    spec = importlib.machinery.PathFinder.find_spec("sglang")
    return spec is not None and spec.origin is not None and Path(spec.origin).resolve().parents[1] == root


def _import_tree(root: Path) -> Tree:
    installed = _is_installed(root)
    missing = missing_finder()
    finder = tree_finder(root)
    if installed:
        found = _import_modules(root)
    else:
        sys.meta_path.insert(0, finder)
        before = set(sys.modules)
        try:
            with missing.answering():
                found = _import_modules(root)
        except BaseException:
            sys.meta_path.remove(finder)
            for name in [name for name in sys.modules if name.split(".", 1)[0] == "sglang"]:
                if name not in before:
                    del sys.modules[name]
            raise
    config = TreeConfig()
    substitutes = _substitute(found, config)
    if not installed:
        seal()
    return Tree(
        root=root,
        version=importlib.import_module("sglang.version").__version__,
        is_installed=installed,
        features=ask_features(found),
        config=config,
        substitutes=substitutes,
        stand_ins=(*finder.stand_ins, *missing.stand_ins),
        **vars(found),
    )


def _import_modules(root: Path) -> SimpleNamespace:
    found = SimpleNamespace()
    try:
        for attribute, name in _MODULES.items():
            setattr(found, attribute, importlib.import_module(name))
        importlib.import_module("sglang.version")
    except ModuleNotFoundError as error:
        if str(error.name).split(".", 1)[0] == "sglang":
            raise TreeError(f"{root}: has no {error.name}; use SGLang 0.5.19 or later") from error
        raise TreeError(
            f"{root}: its memory management needs {error.name}, which is not installed; "
            "install kvstress[sglang], or the package by that name"
        ) from error
    for attribute, name in _OPTIONAL_MODULES.items():
        setattr(found, attribute, importlib.import_module(name) if _exists(name) else None)
    for attribute, module in _CLASSES.items():
        setattr(found, attribute, getattr(getattr(found, module), attribute))
    return found


def _exists(name: str) -> bool:
    return importlib.util.find_spec(name) is not None


def _substitute(found: SimpleNamespace, config: TreeConfig) -> tuple[str, ...]:
    runtime_context = importlib.import_module("sglang.srt.runtime_context")
    native_hash = importlib.import_module(_CACHE + "cpp_utils.native_hash")
    cache_utils = importlib.import_module(_CACHE + "utils")
    answer_configuration(runtime_context, config)
    replaced = {
        "configuration": True,
        "cpu_kernels": replace_cpu_kernels(found.paged),
        "page_hash": replace_page_hash(native_hash, cache_utils),
    }
    return tuple(name for name, done in replaced.items() if done)
