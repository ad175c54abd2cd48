"""Which modules of an SGLang tree are executed, and what stands for the others.

SGLang's package imports 4,400 modules and a dozen packages; its memory management needs about 250 modules and
torch, triton, numpy, packaging, msgspec, typing_extensions, pydantic_core. Modules in TREE_MODULES run their
own source; any other `sglang.*` is a stand-in. A third-party package is imported wherever it is installed. Where
it is not, modules of the tree, and nothing else in the process, get a stand-in for the ones in THIRD_PARTY.
"""

from __future__ import annotations

from pathlib import Path

from stress.engine.tree_finder import MissingFinder, TreeFinder

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
_CURE = "add it to TREE_MODULES in stress/engine/sglang/tree_finder.py"


def tree_finder(root: Path) -> TreeFinder:
    """Finds `sglang` in the tree below `root`."""
    return TreeFinder("sglang", root, TREE_MODULES, LEFT_OUT, _CURE)


def missing_finder() -> MissingFinder:
    """Answers modules of the tree for what is not installed of THIRD_PARTY."""
    return MissingFinder("sglang", THIRD_PARTY, _CURE)
