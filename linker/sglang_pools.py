"""Which physical pools of an SGLang server hold a page's KV. Imported only where SGLang is.

Plain MHA and MLA pools, and an SWA pool made of two such, are read here; for any other (DeepSeek-V4, DSA, Mamba)
upstream's own list for direct linkers is asked, which refuses what it can't move. Exact types are taken, no
subclass: one may keep scales or an index beside the KV, and a load without them is wrong text, not an error.
"""

from __future__ import annotations

from typing import Any

import torch
from sglang.srt.mem_cache.memory_pool import MHATokenToKVPool, MLATokenToKVPool
from sglang.srt.mem_cache.swa_memory_pool import SWAKVPool
from sglang.srt.mem_cache.unified_cache.component_type import ComponentType

from linker.device_pages import DevicePages, rows_a_page

_PLAIN = (MHATokenToKVPool, MLATokenToKVPool)


def device_pages(kvcache: Any, params: Any, components: set) -> tuple[list[DevicePages], int]:
    """(pools, layers that a load counts); no pool if the KV pool has no tensors.

    `params`: upstream's CacheInitParams. Raises ValueError for a pool that can't be moved whole.
    """
    page_size = params.page_size
    if type(kvcache) in _PLAIN:
        _require_no_draft(params)
        layers = {layer: layer for layer in range(kvcache.layer_num)}
        return [_plain_pages("kv", kvcache, layers, page_size)], kvcache.layer_num
    if type(kvcache) is SWAKVPool and {type(kvcache.full_kv_pool), type(kvcache.swa_kv_pool)} <= {*_PLAIN}:
        _require_no_draft(params)
        return _swa_pages(kvcache, page_size), kvcache.layer_num
    if not _has_tensors(kvcache):
        return [], 0
    from sglang.srt.mem_cache.hybrid_cache.linker_pool_assembler import resolve_hybrid_device_pool_group

    group = resolve_hybrid_device_pool_group(
        kvcache=kvcache, page_size=page_size, params=params, components=components
    )
    return pages_of_group(group), group.num_layers


def pool_names(asked: list[str] | None, moved: list[DevicePages], components: set) -> list[str]:
    """The pools whose transfers are taken (kv, swa, mamba): `asked`, or all that the model keeps.

    ValueError if the model lacks one, or can't do without one that is left out.
    """
    by_component = {ComponentType.FULL: "kv", ComponentType.SWA: "swa", ComponentType.MAMBA: "mamba"}
    known = [name for component, name in by_component.items() if component in components]
    kept = list(dict.fromkeys(pages.source for pages in moved)) if moved else known
    wanted = kept if asked is None else asked
    absent = [name for name in wanted if name not in kept]
    if absent:
        raise ValueError(f"linker_extra_config.pools: {absent} are not pools of this model; it has {kept}")
    if "mamba" in known and "mamba" not in wanted:
        raise ValueError(f"linker_extra_config.pools: {wanted} lacks 'mamba'; only 'swa' can be left out")
    return list(dict.fromkeys(wanted))


def pages_of_group(group: Any) -> list[DevicePages]:
    """Upstream's DevicePoolGroup as DevicePages, one an entry."""
    return [_entry_pages(entry) for entry in group.entries]


def _entry_pages(entry: Any) -> DevicePages:
    layers = {}
    for layer, mapped in entry.layer_mapping.items():
        places = [mapped] if isinstance(mapped, int) else list(mapped)
        layers[layer] = [component[place] for component in entry.components for place in places]
    buffer, (_, _, page_bytes) = entry.components[0][0], entry.buffer_meta[0][0]
    return DevicePages(
        entry.name.value,
        entry.indices_from_pool.value,
        layers,
        page_slots=entry.page_size,
        rows_a_page=page_bytes * buffer.shape[0] // buffer.nbytes,
        translate=entry.translate_indices,
    )


def _swa_pages(kvcache: Any, page_size: int) -> list[DevicePages]:
    full, swa = {}, {}
    for model_layer, (pool_layer, is_swa) in kvcache.layers_mapping.items():
        # The server waits for layers counted from the stage's first.
        (swa if is_swa else full)[model_layer - kvcache.start_layer] = pool_layer
    return [
        _plain_pages(name, pool, layers, page_size)
        for name, pool, layers in (("kv", kvcache.full_kv_pool, full), ("swa", kvcache.swa_kv_pool, swa))
        if layers
    ]


def _plain_pages(name: str, pool: Any, layers: dict[int, int], page_size: int) -> DevicePages:
    if type(pool) is MHATokenToKVPool:
        if pool.k_scale_buffer is not None or getattr(pool, "native_k_scale_buffer", None) is not None:
            raise ValueError(f"pool {name}: KV with scales is not moved; start with --kv-cache-dtype auto")
        groups = (pool.k_buffer, pool.v_buffer)
    else:
        groups = (pool.kv_buffer,)
    rows = {rows_a_page(name, group[0], pool.size + pool.page_size, page_size) for group in groups}
    if len(rows) > 1:
        raise ValueError(f"pool {name}: K and V differ in layout; use the server's default KV cache layout")
    buffers = {layer: [group[place] for group in groups] for layer, place in layers.items()}
    return DevicePages(name, name, buffers, page_slots=page_size, rows_a_page=rows.pop())


def _require_no_draft(params: Any) -> None:
    if getattr(params, "mtp_draft_device_pools", ()) or getattr(params, "sidecar_draft_device_pools", ()):
        raise ValueError(
            "a draft model's KV beside plain MHA or MLA pools is not moved; start without speculative decoding"
        )


def _has_tensors(kvcache: Any) -> bool:
    return any(_holds_tensor(value, 3) for value in vars(kvcache).values())


def _holds_tensor(value: Any, depth: int) -> bool:
    """Whether floating or byte rows are kept below it: an index mapping (int64) is none."""
    if isinstance(value, torch.Tensor):
        return value.dim() > 1
    if depth and isinstance(value, list | tuple):
        return any(_holds_tensor(part, depth - 1) for part in value)
    if depth and type(value).__module__.startswith("sglang.") and hasattr(value, "__dict__"):
        return any(_holds_tensor(part, depth - 1) for part in vars(value).values())
    return False
