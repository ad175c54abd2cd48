"""What of a tree is replaced where it can't run without a server, each by name and tested.

logging     lmcache.logging hands out loggers that write nothing and set up nothing of the process's
statistics  LMCStatsMonitor counts nothing: upstream's starts threads and a metrics server
numa        NUMAMapping is a class without anything: it annotates where a server's buffers lie
collected   a page that Python collects does not free itself: all pages of a pool are collected with it, at the end of a
            run, and would be freed into a pool that is gone
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from types import ModuleType
from typing import Any

from stress.engine.quiet_logger import QuietLogger


class NoStatistics:
    """A statistics monitor that takes every update and keeps none."""

    @classmethod
    def GetOrCreate(cls) -> NoStatistics:
        return cls()

    def __getattr__(self, name: str) -> Callable[..., None]:
        if not name.startswith("update_"):
            raise AttributeError(name)
        return _ignore


class NUMAMapping:
    """Stands in annotations."""


def _ignore(*args: Any, **named: Any) -> None:
    """Nothing is counted."""


def replace_names() -> tuple[str, ...]:
    """Before any module of the tree takes them. Returns the substitutes' names.

    The tree's finder has to be in sys.meta_path, and stand-ins unsealed.
    """
    importlib.import_module("lmcache.logging").init_logger = QuietLogger
    importlib.import_module("lmcache.observability").LMCStatsMonitor = NoStatistics
    importlib.import_module("lmcache.v1.system_detection").NUMAMapping = NUMAMapping
    return "logging", "statistics", "numa"


def keep_collected(memory_management: ModuleType) -> str:
    """Takes the destructor from a tree's pages, if they have one. Returns the substitute's name."""
    kind = memory_management.TensorMemoryObj
    if "__del__" in vars(kind):
        del kind.__del__
    return "collected"
