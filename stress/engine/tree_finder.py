"""Finds a tree's modules: some run their own source, and stand-ins stand for the others.

A project's whole package imports thousands of modules and dozens of packages; its memory management needs a few
hundred. Each engine lists those: they run their own source. A package above one of them is searched, its
__init__ does not run; any other module of the project is a stand-in.
"""

from __future__ import annotations

import builtins
import importlib.abc
import importlib.machinery
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from stress.engine.stand_in import StandInModule, seal, sealed, unseal


class TreeFinder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds `package` and everything below it in one tree, first in sys.meta_path, for the process's life.

    A module is executed where it is in `tree_modules`, or below one of them, and not so in `left_out`. `cure` ends
    the message where a stand-in is used: which list to extend. `importer`: the `__import__` of the modules that are
    executed, in place of the builtin.
    """

    def __init__(
        self,
        package: str,
        root: Path,
        tree_modules: Sequence[str],
        left_out: Sequence[str],
        cure: str,
        importer: Callable[..., Any] | None = None,
    ) -> None:
        self.package = package
        self.root = root
        self.tree_modules = tuple(tree_modules)
        self.left_out = tuple(left_out)
        self.cure = cure
        self.importer = importer
        self.stand_ins: list[str] = []

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name.split(".", 1)[0] != self.package:
            return None
        if below(name, self.tree_modules) and not below(name, self.left_out):
            return self._source(name, path)
        folder = self.root.joinpath(*name.split("."))
        if folder.is_dir() and any(module.startswith(name + ".") for module in self.tree_modules):
            return _stand_in(name, self, [str(folder)])
        return _stand_in(name, self, [])

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        self.stand_ins.append(spec.name)
        return StandInModule(spec.name, self.cure)

    def exec_module(self, module: ModuleType) -> None:
        """A stand-in has no body."""

    def _source(self, name: str, path: Sequence[str] | None) -> importlib.machinery.ModuleSpec | None:
        spec = importlib.machinery.PathFinder.find_spec(name, path or [str(self.root)])
        if spec is not None and isinstance(spec.loader, importlib.machinery.SourceFileLoader):
            spec.loader = _BodyLoader(spec.loader.name, spec.loader.path, self.importer)
        return spec


class MissingFinder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Answers modules of `package` for those of `third_party` that nothing else finds.

    The last in sys.meta_path, while the tree is imported.
    """

    def __init__(self, package: str, third_party: Sequence[str], cure: str) -> None:
        self.package = package
        self.third_party = tuple(third_party)
        self.cure = cure
        self.stand_ins: list[str] = []

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name.split(".", 1)[0] not in self.third_party or not below(_importing_module(), (self.package,)):
            return None
        return _stand_in(name, self, [])

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        self.stand_ins.append(spec.name)
        return StandInModule(spec.name, self.cure)

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

    def __init__(self, name: str, path: str, importer: Callable[..., Any] | None) -> None:
        super().__init__(name, path)
        self._importer = importer

    def exec_module(self, module: ModuleType) -> None:
        if self._importer is not None:
            # What a module's globals have here is what its import statements call, in its functions too.
            vars(module)["__builtins__"] = {**vars(builtins), "__import__": self._importer}
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


def below(name: str, prefixes: Sequence[str]) -> bool:
    """Whether a module is one of `prefixes` or inside one."""
    return any(name == prefix or name.startswith(prefix + ".") for prefix in prefixes)


def _importing_module() -> str:
    """The module whose `import` statement is being executed."""
    frame = sys._getframe(2)
    while frame is not None and frame.f_code.co_filename.startswith("<frozen importlib"):
        frame = frame.f_back
    return frame.f_globals.get("__name__", "") if frame is not None else ""
