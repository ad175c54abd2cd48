"""load_tree(root): the KV-cache management of one vLLM tree, imported into this process.

Neither the tree's server nor torch is imported for it: see tree_finder and element_types. A process imports one
tree; a rank is a process. No module of it may ask a module that is not imported anything (StandInUsed).
What is replaced of a tree is listed in VllmTree.substitutes: see substitutes.
"""

from __future__ import annotations

import importlib
import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType, SimpleNamespace

from stress.engine.private_modules import PrivateModules
from stress.engine.stand_in import seal
from stress.engine.tree_error import TreeError
from stress.engine.vllm.element_types import torch_substitute
from stress.engine.vllm.features import Features, ask_features
from stress.engine.vllm.substitutes import fix_none_hash, replace_names
from stress.engine.vllm.tree_finder import NEEDED, PACKAGE_CURE, tree_finder

_MODULES = {
    "block_pool": "vllm.v1.core.block_pool",
    "kv_cache_manager": "vllm.v1.core.kv_cache_manager",
    "kv_cache_coordinator": "vllm.v1.core.kv_cache_coordinator",
    "single_type_kv_cache_manager": "vllm.v1.core.single_type_kv_cache_manager",
    "kv_cache_utils": "vllm.v1.core.kv_cache_utils",
    "kv_cache_interface": "vllm.v1.kv_cache_interface",
    "request": "vllm.v1.request",
    "sched_output": "vllm.v1.core.sched.output",
}
_OPTIONAL_MODULES = {
    "simple_offload": "vllm.v1.simple_kv_offload.manager",
    "simple_offload_metadata": "vllm.v1.simple_kv_offload.metadata",
}
_SCHEDULER_MODULES = {
    "scheduler": "vllm.v1.core.sched.scheduler",
    "outputs": "vllm.v1.outputs",
    "connector_utils": "vllm.distributed.kv_transfer.kv_connector.utils",
}


@dataclass(frozen=True)
class VllmTree:
    """One imported tree. A module has its upstream name, or the one that is given with it."""

    root: Path
    version: str
    features: Features
    substitutes: tuple[str, ...]
    stand_ins: tuple[str, ...]
    """Modules that were not imported, for a report."""
    torch: ModuleType
    """The process's own, or the substitute: for the element types of a cache spec."""

    block_pool: ModuleType
    kv_cache_manager: ModuleType
    kv_cache_coordinator: ModuleType
    single_type_kv_cache_manager: ModuleType
    kv_cache_utils: ModuleType
    kv_cache_interface: ModuleType
    request: ModuleType
    sched_output: ModuleType
    """vllm.v1.core.sched.output"""
    simple_offload: ModuleType | None
    """vllm.v1.simple_kv_offload.manager"""
    simple_offload_metadata: ModuleType | None
    """vllm.v1.simple_kv_offload.metadata"""
    scheduler: ModuleType | None
    """vllm.v1.core.sched.scheduler, where it was asked for"""
    outputs: ModuleType | None
    """vllm.v1.outputs, of which a scheduler is given a step's result; where it was asked for"""
    connector_utils: ModuleType | None
    """What joins the answers of several workers; where the scheduler was asked for"""


_loaded: VllmTree | None = None


def load_tree(root: Path | str, scheduler: bool = False) -> VllmTree:
    """The tree below `root`, the folder that holds `vllm/`; the same one when asked again.

    `scheduler`: with the tree's own scheduler; it has to be asked for at the first load. Raises TreeError: no tree
    there, another tree is imported in this process, or this one without its scheduler, a package is missing.
    """
    global _loaded
    root = Path(root).resolve()
    if _loaded is None:
        _refuse_unfit(root)
        _loaded = _import_tree(root, scheduler)
    elif _loaded.root != root:
        raise TreeError(
            f"{root}: this process has imported {_loaded.root}; load each tree in its own process"
        )
    elif scheduler and _loaded.scheduler is None:
        raise TreeError(f"{root}: was imported without its scheduler; ask for it at the first load")
    return _loaded


def _refuse_unfit(root: Path) -> None:
    if not (root / "vllm" / "v1" / "core").is_dir():
        raise TreeError(f"{root}: holds no vllm/v1/core; name the folder that holds vllm/")
    if "vllm" in sys.modules:
        raise TreeError(f"{root}: vllm is imported in this process already; load a tree in a fresh process")


def _import_tree(root: Path, scheduler: bool) -> VllmTree:
    given = {} if "torch" in sys.modules else {"torch": torch_substitute(PACKAGE_CURE)}
    packages = PrivateModules({"vllm", "torch", *NEEDED}, given, PACKAGE_CURE)
    finder = tree_finder(root, packages)
    sys.meta_path.insert(0, finder)
    try:
        found = _import_modules(root, scheduler, packages)
        features = ask_features(found)
    except BaseException:
        sys.meta_path.remove(finder)
        for name in [name for name in sys.modules if name.split(".", 1)[0] == "vllm"]:
            del sys.modules[name]
        raise
    seal()
    found.substitutes = (*given, *found.substitutes)
    return VllmTree(
        root=root,
        features=features,
        stand_ins=(*finder.stand_ins, *packages.stand_ins),
        torch=given.get("torch") or sys.modules["torch"],
        **vars(found),
    )


def _import_modules(root: Path, scheduler: bool, packages: PrivateModules) -> SimpleNamespace:
    found = SimpleNamespace()
    try:
        replaced = replace_names(packages)
        for attribute, name in _MODULES.items():
            setattr(found, attribute, importlib.import_module(name))
        for attribute, name in _OPTIONAL_MODULES.items():
            setattr(found, attribute, importlib.import_module(name) if _is_there(root, name) else None)
        for attribute, name in _SCHEDULER_MODULES.items():
            setattr(found, attribute, importlib.import_module(name) if scheduler else None)
        found.version = importlib.import_module("vllm.version").__version__
    except ModuleNotFoundError as error:
        if str(error.name).split(".", 1)[0] == "vllm":
            raise TreeError(f"{root}: has no {error.name}; use vLLM 0.20 or later") from error
        raise TreeError(
            f"{root}: its KV-cache management needs {error.name}, which is not installed; "
            "install kvstress[vllm], or the package by that name"
        ) from error
    found.substitutes = (*replaced, fix_none_hash(found.kv_cache_utils))
    return found


def _is_there(root: Path, name: str) -> bool:
    module = root.joinpath(*name.split("."))
    return module.with_suffix(".py").is_file() or (module / "__init__.py").is_file()
