"""Third-party modules that the modules of one tree see, and nothing else in the process.

They are not in sys.modules at any time: another thread, or a package that the tree imports, gets the real ones, and
so does everybody after the load. What is installed, or imported already, makes no difference to the tree.
"""

from __future__ import annotations

import builtins
import sys
from collections.abc import Collection, Mapping
from types import ModuleType
from typing import Any

from stress.engine.stand_in import StandInModule


class PrivateModules:
    """The `__import__` of a tree's modules: see stress.engine.tree_finder.TreeFinder.

    `real`: the packages imported as anybody would, beside the standard library. `given`: modules that answer by
    their full name, also where they are in `real`. Any other package is a stand-in.
    """

    def __init__(self, real: Collection[str], given: Mapping[str, ModuleType], cure: str) -> None:
        self._real = (frozenset(real) | sys.stdlib_module_names) - given.keys()
        self._given = tuple(given)
        self._modules = dict(given)
        self._cure = cure

    @property
    def stand_ins(self) -> tuple[str, ...]:
        """The modules that were asked for and not imported."""
        return tuple(name for name in self._modules if name not in self._given)

    def __call__(
        self,
        name: str,
        globals: Mapping[str, Any] | None = None,
        locals: Mapping[str, Any] | None = None,
        fromlist: Collection[str] = (),
        level: int = 0,
    ) -> Any:
        if level or self.is_real(name):
            return builtins.__import__(name, globals, locals, fromlist, level)
        # `import a.b` binds a, `from a.b import c` takes c from a.b
        return self.module(name if fromlist else name.partition(".")[0])

    def is_real(self, name: str) -> bool:
        """Whether a module is imported as anybody would."""
        return name.partition(".")[0] in self._real

    def module(self, name: str) -> ModuleType:
        """One that was given, or a stand-in."""
        if name not in self._modules:
            self._modules[name] = StandInModule(name, self._cure, self._modules)
        return self._modules[name]
