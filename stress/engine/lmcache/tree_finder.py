"""Which modules of an LMCache tree are executed, and which packages they get.

LMCache's package asks for a device and its compiled operations when it is imported; its paged allocator needs the
modules below, and of packages torch alone. Anything else is a stand-in, installed or not, so that a tree is the same
one everywhere.
"""

from __future__ import annotations

from pathlib import Path

from stress.engine.private_modules import PrivateModules
from stress.engine.tree_finder import TreeFinder

PAGED = "lmcache.v1.memory_allocators.paged_tensor_memory_allocator"
TREE_MODULES = (PAGED, "lmcache.v1.memory_management", "lmcache.utils", "lmcache._version")
NEEDED = ("torch",)
_FILE = "stress/engine/lmcache/tree_finder.py"
MODULE_CURE = f"add it to TREE_MODULES in {_FILE}"
PACKAGE_CURE = f"add its package to NEEDED in {_FILE}"


def tree_packages() -> PrivateModules:
    """What the tree's modules import besides each other."""
    return PrivateModules({"lmcache", *NEEDED}, {}, PACKAGE_CURE)


def tree_finder(root: Path, packages: PrivateModules) -> TreeFinder:
    """Finds `lmcache` in the tree below `root`; its modules import third-party packages by `packages`."""
    return TreeFinder("lmcache", root, TREE_MODULES, (), MODULE_CURE, packages)
