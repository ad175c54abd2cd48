"""Which modules of an SGLang tree are executed, and what stands for the others.

SGLang's package imports 4,400 modules and a dozen packages; its memory management needs about 250 modules and
torch, triton, numpy, packaging, msgspec, typing_extensions, pydantic_core. Modules in TREE_MODULES run their
own source; a package above one of them is searched, its __init__ does not run; any other `sglang.*` is a
stand-in. A third-party package is imported wherever it is installed. Where it is not, modules of the tree, and
nothing else in the process, get a stand-in for the ones in THIRD_PARTY.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

from stress.engine.sglang.stand_in import StandInModule, seal, sealed, unseal

TREE_MODULES = (
    "sglang.srt.mem_cache",
    "sglang.srt.disaggregation.kv_events",
    "sglang.srt.session",
    "sglang.srt.managers.schedule_batch",
    "sglang.srt.environ",
    "sglang.srt.runtime_context",
    "sglang.srt.platforms",
    "sglang.srt.plugins",
    "sglang.srt.utils",
    "sglang.srt.rust_extensions",
    "sglang.kernels.ops.memory",
    "sglang.srt.layers.attention.dsv4.unified_kv_gate",
    "sglang.version",
    "sglang._version",
)
# Below a prefix of TREE_MODULES, but for one model or device, with imports of their own.
LEFT_OUT = (
    "sglang.srt.mem_cache.deepseek_v4_memory_pool",
    "sglang.srt.mem_cache.sparsity",
    "sglang.srt.mem_cache.storage",
    "sglang.srt.mem_cache.layout",
    "sglang.srt.mem_cache.qsa_kv_pool",
    "sglang.srt.mem_cache.cpp_radix_tree",
    "sglang.srt.mem_cache.radix_cache_cpp",
    "sglang.srt.mem_cache.multimodal_cache",
    "sglang.srt.mem_cache.kv_vmm_backing",
    "sglang.srt.utils.hf_transformers",
    "sglang.srt.utils.hf_transformers_utils",
    "sglang.srt.utils.hf_transformers_patches",
    "sglang.srt.utils.patch_torch",
    "sglang.srt.utils.tensor_bridge",
)
THIRD_PARTY = ("orjson", "psutil", "pybase64", "requests", "PIL", "starlette", "torchvision", "zmq")


class TreeFinder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds `sglang` and everything below it in one tree, first in sys.meta_path, for the process's life."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.stand_ins: list[str] = []

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name.split(".", 1)[0] != "sglang":
            return None
        if _below(name, TREE_MODULES) and not _below(name, LEFT_OUT):
            return self._source(name, path)
        folder = self.root.joinpath(*name.split("."))
        if folder.is_dir() and any(module.startswith(name + ".") for module in TREE_MODULES):
            return _stand_in(name, self, [str(folder)])
        return _stand_in(name, self, [])

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        self.stand_ins.append(spec.name)
        return StandInModule(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """A stand-in has no body."""

    def _source(self, name: str, path: Sequence[str] | None) -> importlib.machinery.ModuleSpec | None:
        spec = importlib.machinery.PathFinder.find_spec(name, path or [str(self.root)])
        if spec is not None and isinstance(spec.loader, importlib.machinery.SourceFileLoader):
            spec.loader = _BodyLoader(spec.loader.name, spec.loader.path)
        return spec


class MissingFinder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Answers for packages that nothing else finds: the last in sys.meta_path, while the tree is imported."""

    def __init__(self) -> None:
        self.stand_ins: list[str] = []

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name.split(".", 1)[0] not in THIRD_PARTY or not _below(_importing_module(), ("sglang",)):
            return None
        return _stand_in(name, self, [])

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        self.stand_ins.append(spec.name)
        return StandInModule(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """A stand-in has no body."""

    @contextmanager
    def answering(self) -> Iterator[None]:
        """Afterwards the process knows nothing of the stand-ins: a later import elsewhere fails as it must."""
        sys.meta_path.append(self)
        try:
            yield
        finally:
            sys.meta_path.remove(self)
            for name in self.stand_ins:
                sys.modules.pop(name, None)


class _BodyLoader(importlib.machinery.SourceFileLoader):
    """Runs a module's body unsealed, also where a sealed tree imports it late."""

    def exec_module(self, module: ModuleType) -> None:
        was_sealed = sealed()
        unseal()
        try:
            super().exec_module(module)
        finally:
            if was_sealed:
                seal()


def _stand_in(name: str, loader: importlib.abc.Loader, search: list[str]) -> importlib.machinery.ModuleSpec:
    spec = importlib.machinery.ModuleSpec(name, loader, is_package=True)
    spec.submodule_search_locations = search
    return spec


def _below(name: str, prefixes: Sequence[str]) -> bool:
    return any(name == prefix or name.startswith(prefix + ".") for prefix in prefixes)


def _importing_module() -> str:
    """The module whose `import` statement is being executed."""
    frame = sys._getframe(2)
    while frame is not None and frame.f_code.co_filename.startswith("<frozen importlib"):
        frame = frame.f_back
    return frame.f_globals.get("__name__", "") if frame is not None else ""
