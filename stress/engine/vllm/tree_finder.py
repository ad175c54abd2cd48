"""Which modules of a vLLM tree are executed, and which packages they get.

vLLM's package imports some 3,600 modules beside torch's; its KV-cache management needs the ones below and NEEDED.
Any other package gets stand-ins, installed or not, so that a tree is the same one everywhere.
"""

from __future__ import annotations

from pathlib import Path

from stress.engine.private_modules import PrivateModules
from stress.engine.tree_finder import TreeFinder

TREE_MODULES = (
    "vllm.v1.core",
    "vllm.v1.kv_cache_interface",
    "vllm.v1.kv_cache_layout",
    "vllm.v1.kv_cache_spec_registry",
    "vllm.v1.request",
    "vllm.v1.hisparse",
    "vllm.v1.simple_kv_offload",
    "vllm.v1.engine",
    "vllm.v1.kv_hints",
    "vllm.v1.metrics.stats",
    "vllm.v1.metrics.cache_hit_source",
    "vllm.v1.outputs",
    "vllm.v1.serial_utils",
    "vllm.v1.structured_output.request",
    "vllm.v1.utils",
    "vllm.multimodal.utils",
    "vllm.distributed.kv_events",
    "vllm.distributed.kv_transfer.kv_connector.base",
    "vllm.distributed.kv_transfer.kv_connector.factory",
    "vllm.distributed.kv_transfer.kv_connector.utils",
    "vllm.distributed.kv_transfer.kv_connector.v1",
    "vllm.envs",
    "vllm.utils",
    "vllm.version",
    "vllm._version",
)
# Below a prefix of TREE_MODULES, but of a worker, of a server's network or of its metrics.
LEFT_OUT = (
    "vllm.distributed.kv_transfer.kv_connector.v1.metrics",
    "vllm.v1.simple_kv_offload.worker",
    "vllm.v1.simple_kv_offload.copy_backend",
    "vllm.v1.simple_kv_offload.cuda_mem_ops",
    "vllm.v1.simple_kv_offload.disk_backend",
    "vllm.utils.async_utils",
    "vllm.utils.network_utils",
)
NEEDED = ("msgspec", "numpy", "packaging", "typing_extensions", "pydantic_core")
_FILE = "stress/engine/vllm/tree_finder.py"
MODULE_CURE = f"add it to TREE_MODULES in {_FILE}"
PACKAGE_CURE = f"add its package to NEEDED in {_FILE}"


def tree_finder(root: Path, packages: PrivateModules) -> TreeFinder:
    """Finds `vllm` in the tree below `root`; its modules import third-party packages by `packages`."""
    return TreeFinder("vllm", root, TREE_MODULES, LEFT_OUT, MODULE_CURE, packages)
