"""Run as a script, with a tree's root and a part's name: imports the tree and prints what test_tree_import asks."""

import importlib.util
import json
import logging
import os
import sys
from types import SimpleNamespace

import msgspec

from stress.engine.stand_in import StandInUsed
from stress.engine.tree_error import TreeError
from stress.engine.vllm.substitutes import NONE_HASH, page_hash
from stress.engine.vllm.tree_import import load_tree

HASH_BLOCK = 4


def without_torch(root):
    before, settings, logs = set(sys.modules), dict(os.environ), process_logging()
    tree = load_tree(root)
    new = {name for name in sys.modules if name not in before}
    return {
        **of_tree(tree, root),
        "torch_imported": "torch" in sys.modules,
        "left_in_process": sorted(new & {name for name in tree.stand_ins if not name.startswith("vllm")}),
        "cbor2_elsewhere": is_importable("cbor2"),
        "environment_kept": dict(os.environ) == settings,
        "logging_kept": process_logging() == logs,
        "refused": {name: refusal(call, StandInUsed) for name, call in uses(tree).items()},
        "no_scheduler": refusal(lambda: load_tree(root, scheduler=True), TreeError),
        "other_root": refusal(lambda: load_tree("/"), TreeError),
        "says": says(tree),
    }


def with_scheduler(root):
    before = set(sys.modules)
    tree = load_tree(root, scheduler=True)
    new = {name for name in sys.modules if name not in before}
    return {
        "scheduler": tree.scheduler.Scheduler.__module__,
        "outputs": tree.outputs.ModelRunnerOutput.__module__,
        "features": msgspec.to_builtins(tree.features),
        "torch_imported": "torch" in sys.modules,
        "left_in_process": sorted(new & {name for name in tree.stand_ins if not name.startswith("vllm")}),
    }


def torch_first(root):
    import torch

    tree = load_tree(root)
    return {**of_tree(tree, root), "is_the_process_s": tree.torch is torch}


def torch_later(root):
    tree = load_tree(root)
    import torch

    return {
        "real": torch.ones(3).sum().item(),
        "trees_own": tree.torch is not torch and size_of(tree, tree.torch.bfloat16),
    }


def one_package_missing(root):
    """A load that fails leaves nothing behind, so that the next one works."""
    absent = Absent()
    sys.meta_path.insert(0, absent)
    sys.modules.pop("pydantic_core", None)
    told = refusal(lambda: load_tree(root), TreeError)
    left = [name for name in sys.modules if name.split(".")[0] == "vllm"]
    sys.meta_path.remove(absent)
    return {"told": told, "left": left, "then": load_tree(root).version}


class Absent:
    """A finder for which one package is not installed."""

    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "pydantic_core":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def of_tree(tree, root):
    modules = [
        value for value in vars(tree).values() if hasattr(value, "__spec__") and value is not tree.torch
    ]
    return {
        "version": tree.version,
        "features": msgspec.to_builtins(tree.features),
        "substitutes": tree.substitutes,
        "stand_ins": tree.stand_ins,
        "modules": len(modules),
        "files": sorted({str(module.__file__).startswith(root) for module in modules}),
        "same_again": load_tree(root) is tree,
        "none_hash": tree.kv_cache_utils.NONE_HASH == NONE_HASH,
        "sizes": {
            name: size_of(tree, getattr(tree.torch, name)) for name in ("float32", "bfloat16", "uint8")
        },
        "page_bytes": page_bytes(tree),
        "hashes": [value.hex() for value in request(tree, range(10)).block_hashes],
        "expected": chained(range(10)),
    }


def size_of(tree, dtype):
    return sys.modules["vllm.utils.torch_utils"].get_dtype_size(dtype)


def page_bytes(tree):
    spec = tree.kv_cache_interface.FullAttentionSpec
    return spec(block_size=16, num_kv_heads=2, head_size=8, dtype=tree.torch.float16).page_size_bytes


def request(tree, tokens):
    """A request whose hashes are page_hash's, as upstream's hasher chains them."""
    sampling = SimpleNamespace(
        max_tokens=1,
        extra_args=None,
        structured_outputs=None,
        skip_reading_prefix_cache=None,
        prompt_logprobs=None,
    )
    hasher = tree.kv_cache_utils.get_request_block_hasher(HASH_BLOCK, page_hash)
    return tree.request.Request("r", list(tokens), sampling, None, block_hasher=hasher)


def chained(tokens):
    """The hashes of the whole blocks, by page_hash alone."""
    parent, found = NONE_HASH, []
    for start in range(0, len(tokens) - HASH_BLOCK + 1, HASH_BLOCK):
        parent = page_hash((parent, tuple(tokens[start : start + HASH_BLOCK]), None))
        found.append(parent.hex())
    return found


def uses(tree):
    """Questions that nothing imported can answer."""
    from vllm.platforms import current_platform
    from vllm.sampling_params import SamplingParams

    hashing = sys.modules["vllm.utils.hashing"]
    return {
        "class": lambda: SamplingParams(max_tokens=1),
        "platform": lambda: current_platform.is_cuda(),
        "config": lambda: sys.modules["vllm.config"].set_current_vllm_config(None),
        "package": lambda: hashing.sha256_cbor((1, 2)),
        "torch": lambda: tree.torch.cuda.is_available(),
        "torch_part": lambda: bool(tree.torch.version),
        "torch_test": lambda: tree.torch.is_tensor(1),
    }


def says(tree):
    """What the substitutes with an answer say."""
    from vllm.config import get_current_vllm_config_or_none
    from vllm.platforms import current_platform

    logger = tree.block_pool.logger
    for level in ("debug", "info", "warning", "error"):
        getattr(logger, level)("a word on %s", "stderr")
        getattr(logger, f"{level}_once")("a word on %s", "stderr") if level != "error" else None
    logger.info_once("a word", scope="global")
    return {
        "config": get_current_vllm_config_or_none(),
        "platform": current_platform.register_custom_kv_cache_specs(None),
        "enabled": logger.isEnabledFor(logging.CRITICAL),
        "known_to_others": logger.name in logging.root.manager.loggerDict,
    }


def process_logging():
    """All that is set of the process's logging: a logger that was only named has neither level nor handler."""
    loggers = {
        name: (logger.level, list(logger.handlers), logger.propagate)
        for name, logger in logging.root.manager.loggerDict.items()
        if isinstance(logger, logging.Logger) and (logger.level or logger.handlers or not logger.propagate)
    }
    return logging.root.level, list(logging.root.handlers), loggers, logging.getLogRecordFactory()


def is_importable(package):
    try:
        __import__(package)
    except ModuleNotFoundError:
        return False
    return importlib.util.find_spec(package).origin is not None


def refusal(call, kind):
    try:
        call()
    except kind as error:
        return str(error)
    return "not refused"


if __name__ == "__main__":
    print(json.dumps(globals()[sys.argv[2]](sys.argv[1])))
