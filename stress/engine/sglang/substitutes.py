"""What of a tree is replaced where it can't run without a server or a compiler, each by name and tested.

configuration  the accessors of runtime_context answer from one TreeConfig: no server publishes one here
cpu_kernels    up to 0.5.21 the paged allocator launches triton for tensors on a CPU too: there, the tree's own
               `alloc_extend_naive` and a decode of the same arithmetic are called. CUDA keeps the kernels
page_hash      sha256 chained over each page's little-endian u32 tokens, which upstream compiles as a C++
               extension at first use (g++, libcrypto, about 15 s, a lock shared by all ranks of a machine)
"""

from __future__ import annotations

import hashlib
import sys
from array import array
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import torch

from stress.engine.stand_in import StandInUsed

CONFIG_ACCESSORS = ("get_disagg", "get_spec", "get_serving", "get_parallel")


@dataclass
class TreeConfig:
    """All that the memory management reads of a server's configuration. A field not here raises StandInUsed."""

    disaggregation_mode: str = "null"
    speculative_algorithm: str | None = None
    """Set it while a request that holds reserved slots is released: upstream then trims them."""
    strip_thinking_cache: bool = False
    dcp_enabled: bool = False
    attn_dcp_size: int = 1

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise StandInUsed(
            f"the tree reads {name} of the server's configuration, which is not in TreeConfig; "
            "add it in stress/engine/sglang/substitutes.py"
        )


def answer_configuration(runtime_context: ModuleType, config: TreeConfig) -> None:
    """Every module of the tree that took an accessor gets one that returns `config`."""
    asked = {
        name: getattr(runtime_context, name) for name in CONFIG_ACCESSORS if hasattr(runtime_context, name)
    }
    modules = [module for name, module in list(sys.modules.items()) if name.split(".", 1)[0] == "sglang"]
    for module in modules:
        for name, accessor in asked.items():
            if vars(module).get(name) is accessor:
                setattr(module, name, lambda: config)


def replace_cpu_kernels(paged: ModuleType) -> bool:
    """Whether `paged` (mem_cache.allocator.paged) needed it: a later tree takes its torch path on a CPU."""
    if hasattr(paged, "alloc_decode_naive") or not hasattr(paged, "alloc_extend_kernel"):
        return False

    def extend(prefix_lens, seq_lens, last_loc, free_pages, out, batch_upper, page_size, *_):
        paged.alloc_extend_naive(prefix_lens, seq_lens, last_loc, free_pages, out, page_size, out.device)

    paged.alloc_extend_kernel = _OnCpu(paged.alloc_extend_kernel, extend)
    paged.alloc_decode_kernel = _OnCpu(paged.alloc_decode_kernel, _decode)
    return True


class _OnCpu:
    """A triton kernel, launched as `kernel[grid](...)`, but for tensors on a CPU."""

    def __init__(self, kernel: Any, on_cpu: Any) -> None:
        self._kernel = kernel
        self._on_cpu = on_cpu

    def __getitem__(self, grid: Any) -> Any:
        def launch(*args: Any, **kwargs: Any) -> Any:
            if args[0].device.type == "cpu":
                return self._on_cpu(*args, **kwargs)
            return self._kernel[grid](*args, **kwargs)

        return launch


def _decode(seq_lens, last_loc, free_pages, out, batch_upper, page_size, *_) -> None:
    """One slot a request: the first of a new page where the last token filled one, else the next slot."""
    if free_pages.numel() == 0:
        out.copy_(last_loc + 1)
        return
    opens_page = (seq_lens - 1) % page_size == 0
    nth = (opens_page.to(torch.int64).cumsum(0) - 1).clamp(0, free_pages.numel() - 1)
    out.copy_(torch.where(opens_page, free_pages[nth] * page_size, last_loc + 1))


def replace_page_hash(native_hash: ModuleType, cache_utils: ModuleType) -> bool:
    """Whether the tree hashes pages natively and now by hashlib: the same bytes."""
    if not hasattr(cache_utils, "get_native_hash"):
        return False

    def page_hashes(token_ids: Any, prior_digest: bytes | None, page_size: int | None = None) -> Any:
        raw, count, width, is_bigram = native_hash._native_hash_input(token_ids)
        words = array("I", _words(raw, count, width, is_bigram))
        unit = 2 if is_bigram else width
        return _chained(words, unit * (page_size or max(count, 1)), prior_digest or b"", page_size)

    cache_utils.get_native_hash = page_hashes
    return True


def _words(raw: Any, count: int, width: int, is_bigram: bool) -> Any:
    if not is_bigram:
        return raw[: count * width]
    return [raw[i + part] for i in range(count) for part in (0, 1)]


def _chained(words: array, words_a_page: int, digest: bytes, page_size: int | None) -> Any:
    hashes = []
    for start in range(0, len(words), words_a_page):
        digest = hashlib.sha256(digest + words[start : start + words_a_page].tobytes()).digest()
        hashes.append(digest.hex())
    if page_size:
        return hashes
    return hashes[-1] if hashes else hashlib.sha256(digest).hexdigest()
