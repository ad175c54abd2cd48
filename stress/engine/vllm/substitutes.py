"""What of a tree is replaced where it can't run without a server or torch, each by name and tested.

torch       element types and their sizes, where the process has not imported torch: see element_types
logging     vllm.logger hands out loggers that write nothing and are known to no other logger
config      vllm.config.get_current_vllm_config_or_none() is None, as in a process that set none
platform    current_platform registers no cache specs of its own, as vLLM's CPU and CUDA platforms
lazy        vllm.utils.import_utils.LazyLoader gives a private module at once, where upstream's puts what it imports
            into sys.modules, for everybody: see private_modules
none_hash   NONE_HASH, the parent of a first block's hash, is the same bytes in every process
page_hash   is not set in a tree but handed to get_request_block_hasher: see page_hash()
"""

from __future__ import annotations

import hashlib
import importlib
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import msgspec

from stress.engine.private_modules import PrivateModules
from stress.engine.quiet_logger import QuietLogger
from stress.engine.stand_in import StandIn
from stress.engine.vllm.tree_finder import MODULE_CURE

NONE_HASH = hashlib.sha256(b"kvstress: no parent block").digest()
_encode = msgspec.msgpack.Encoder().encode


class VllmLogger(QuietLogger):
    """With vLLM's methods."""

    def once(self, message: str, *args: Any, scope: str = "local") -> None:
        """Says nothing, once or more often."""

    debug_once = info_once = warning_once = error_once = once


def replace_names(packages: PrivateModules) -> tuple[str, ...]:
    """Before any module of the tree takes them: the few names that have to answer, or answer otherwise.

    Returns the substitutes' names. The tree's finder has to be in sys.meta_path, and stand-ins unsealed.
    Raises ModuleNotFoundError for a tree without import_utils.
    """
    importlib.import_module("vllm.logger").init_logger = VllmLogger
    importlib.import_module("vllm.config").get_current_vllm_config_or_none = lambda: None
    platform = StandIn("vllm.platforms.current_platform", MODULE_CURE)
    platform.register_custom_kv_cache_specs = lambda config: None
    importlib.import_module("vllm.platforms").current_platform = platform
    import_utils = importlib.import_module("vllm.utils.import_utils")
    import_utils.LazyLoader = _lazy_loader(packages, import_utils.LazyLoader)
    return "logging", "config", "platform", "lazy"


def _lazy_loader(packages: PrivateModules, upstream: Callable[..., Any]) -> Callable[..., Any]:
    def load(local_name: str, parent_module_globals: dict[str, Any], name: str) -> Any:
        if packages.is_real(name):
            return upstream(local_name, parent_module_globals, name)
        return packages.module(name)

    return load


def fix_none_hash(kv_cache_utils: ModuleType) -> str:
    """NONE_HASH of `kv_cache_utils` and of each module that took it. Returns the substitute's name."""
    kv_cache_utils.NONE_HASH = NONE_HASH
    for name, module in list(sys.modules.items()):
        if name.startswith("vllm.") and "NONE_HASH" in vars(module):
            module.NONE_HASH = NONE_HASH
    return "none_hash"


def page_hash(page: Any) -> bytes:
    """sha256 of (parent's hash, token ids, extra keys) in MessagePack: 32 bytes, the same in every process.

    For get_request_block_hasher(hash_block_size, page_hash). MessagePack gives each value's kind and length, so
    that different pages have different encodings; tuples and lists are one kind, as upstream's CBOR has it.
    Raises TypeError for an extra key that has no such encoding: no object is hashed by its address.
    """
    return hashlib.sha256(_encode(page)).digest()
