"""KvStressLinker: this project's linker for a real SGLang server, as its out-of-tree ("dynamic") linker.

It keeps the KV of offloaded pages in this rank's host memory by upstream's page hashes, loads them back layer by
layer, and hits named transfers with faults (linker.faults). Pages become visible when upstream takes the offload's
acknowledgement, in upstream's order, so ranks of one group agree on what is stored. A load that is not whole is
reported by `finish_layer_wise_loading`, after which upstream aborts the batch's loading requests. Without device
tensors in the KV pool only the index is kept. Delays are wall clock: a server has no other.
Interface and construction: SGLang 0.5.23 (sgl-project/sglang#46388); earlier releases build no linker of others.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from typing import Any, NamedTuple

import torch
from sglang.srt.mem_cache.hicache_storage import PoolName
from sglang.srt.mem_cache.unified_cache.unified_cache_linker import UnifiedCacheLinker

from linker.contract import TransferKind
from linker.device_pages import DevicePages, host_block
from linker.faults import FaultSchedule, TransferFault
from linker.host_pages import HostPages, PageBlock
from linker.layer_loads import LayerGate, LoadBatch, PoolLoad, reduced_loads
from linker.plugin_options import plugin_options, rank_of_process
from linker.sglang_pools import device_pages, pool_names

logger = logging.getLogger(__name__)


class _QueuedLoad(NamedTuple):
    loads: list[PoolLoad]
    is_held: bool  # whether the store had every page when the load was queued


class _Offload(NamedTuple):
    stores: list[tuple[str, list[str], PageBlock | None]]  # pool, hashes, content
    event: Any  # recorded behind the copies, None on a CPU
    ready_s: float
    ok: bool


class KvStressLinker(UnifiedCacheLinker):
    """Built by SGLang's factory. Raises ValueError, one line, for wrong options or pools that can't be moved."""

    def __init__(
        self,
        server_args: Any,
        params: Any,
        *,
        components: set,
        extra_config: dict | None = None,
        forward_stream: Any = None,
    ) -> None:
        if not hasattr(UnifiedCacheLinker, "finish_layer_wise_loading"):
            raise ValueError("this SGLang can't be told that a load failed; use 0.5.23 or later")
        options = plugin_options(extra_config)
        self.forward_stream = forward_stream
        self.page_size = params.page_size
        kvcache = params.token_to_kv_pool_allocator.get_kvcache()
        moved, layers = device_pages(kvcache, params, components)
        self._sources = pool_names(options.pools, moved, components)
        self._pages = [pages for pages in moved if pages.source in self._sources]
        self.pools = {PoolName(name): None for name in self._sources}
        self.pools |= {PoolName(pages.name): pages for pages in self._pages}
        device = self._pages[0].device if self._pages else torch.device("cpu")
        self._stream = None if device.type == "cpu" else torch.get_device_module(device).Stream(device=device)
        self.store = HostPages(options.store_pages)
        rank = torch.distributed.get_rank() if torch.distributed.is_initialized() else 0
        self.rank = rank_of_process(options.rank_env, rank)
        self.faults = FaultSchedule(options.transfer_faults(), self.rank)
        self.stats = {"lookups": 0, "hit_pages": 0, "loads": 0, "failed_loads": 0, "offloads": 0}
        self._delay_s = options.delay_us / 1e6
        self._queued: dict[str, _QueuedLoad] = {}
        self._batches: dict[int, LoadBatch] = {}
        self._next_batch = 0
        self._offloads: deque[_Offload] = deque()
        self.layer_done_counter = LayerGate(self._batches.get, layers)
        if "mamba" in self._sources:
            params.req_to_token_pool.register_layer_transfer_counter(self.layer_done_counter)
        logger.info(
            "kvstress linker: rank=%d pools=%s device_pools=%s store_pages=%d faults=%d",
            self.rank,
            self._sources,
            [pages.name for pages in self._pages],
            options.store_pages,
            len(options.faults),
        )

    # What is restorable

    def lookup(self, rid: str, transfers: list) -> list[int]:
        """Every number of leading pages, from 1, that can be restored whole: sparse where a window must end there."""
        self.stats["lookups"] += 1
        kv = _kv_of(transfers)
        # The keys of any other pool are the window of the longest prefix: their number is the window. (Upstream
        # asks here for no further pool of whole prefixes: those ride on the KV transfer.)
        windows = {transfer.name.value: len(transfer.keys) for transfer in self._ours(transfers)}
        del windows["kv"]
        lengths = self.store.restorable("kv", kv.keys, windows)
        self.stats["hit_pages"] += lengths[-1] if lengths else 0
        return lengths

    # Loads

    def load(self, rid: str, transfers: list) -> bool:
        """Queues a load. A page that has left the store since lookup makes it a failed one: to refuse it here, on
        one rank alone, would take that rank another way than its group."""
        if rid in self._queued:
            raise RuntimeError(f"load of request {rid} is queued already; start or cancel it first")
        loads, is_held = [], True
        for transfer in self._ours(transfers):
            runs = self.store.runs(transfer.name.value, transfer.keys)
            is_held &= runs is not None
            loads += [
                PoolLoad(pages, pages.rows(transfer.device_indices), runs or [])
                for pages in self._pages_of(transfer)
            ]
        self._queued[rid] = _QueuedLoad(loads, is_held)
        return True

    def start_layer_wise_loading(self) -> int:
        """Starts what is queued; the index that the layer counter's consumer names, -1 if nothing is."""
        if not self._queued:
            return -1
        queued, self._queued = self._queued, {}
        loads: list[PoolLoad] = []
        landed, delay_s = True, 0.0
        for rid, load in queued.items():
            fault = self._draw("load", rid)
            landed &= load.is_held and (fault is None or fault.kind == "late")
            delay_s = max(delay_s, self._delay_of(fault))
            if load.is_held:
                loads += reduced_loads(load.loads, fault)
        index, self._next_batch = self._next_batch, self._next_batch + 1
        batch = LoadBatch(
            loads, self.layer_done_counter.num_layers, time.monotonic() + delay_s, landed, self._stream
        )
        self._batches[index] = batch
        self.stats["loads"] += len(queued)
        if not delay_s:
            batch.copy()
        return index

    def finish_layer_wise_loading(self, counter_index: int) -> bool:
        """Waits for the batch's copies; True when every load of it is whole."""
        batch = self._batches.get(counter_index)
        if batch is None:
            return True
        landed = batch.finish()
        del self._batches[counter_index]
        self.stats["failed_loads"] += not landed
        return landed

    def cancel_queued_load(self, rid: str) -> bool:
        """True if the request's load had not started; now it never will."""
        return self._queued.pop(rid, None) is not None

    # Offloads

    def offload(self, transfers: list, session_id: str | None = None) -> bool:
        """Queues a store of every pool's pages; False if there are none."""
        ours = [transfer for transfer in self._ours(transfers) if transfer.keys]
        if not any(transfer.name == PoolName.KV for transfer in ours):
            return False
        if all(self.store.holds(transfer.name.value, transfer.keys) for transfer in ours):
            self._offloads.append(_Offload([], None, 0.0, True))
            return True
        fault = self._draw("offload", session_id or "")
        ready_s = time.monotonic() + self._delay_of(fault)
        moved = ours if fault is None or fault.kind in ("late", "short") else []
        blocks, event = self._copy_out(moved)
        kept = set(_kv_of(ours).keys)
        if fault is not None and fault.kind == "short":
            kept = set(_kv_of(ours).keys[: len(kept) // 2])
        stores = []
        for transfer, block in zip(moved, blocks, strict=True):
            # Both cuts keep a head: a window's pages are the last of the node's, in the node's order.
            hashes = [page for page in transfer.keys if page in kept]
            if hashes:
                stores.append((transfer.name.value, hashes, block))
        self._offloads.append(_Offload(stores, event, ready_s, fault is None or fault.kind == "late"))
        return True

    def num_completed_offloads(self) -> int:
        """Offloads that have ended, up to the first that has not."""
        now_s, count = time.monotonic(), 0
        for offload in self._offloads:
            if now_s < offload.ready_s or not (offload.event is None or offload.event.query()):
                break
            count += 1
        return count

    def pop_completed_offload(self) -> bool:
        """Takes the oldest; its pages can be looked up from here on. Whether all of them were stored."""
        offload = self._offloads.popleft()
        self.store.put(offload.stores)
        self.stats["offloads"] += offload.ok
        return offload.ok

    # Life

    def reset(self) -> None:
        """Ends all transfers; stored pages stay, so that a flushed device cache is filled from here."""
        for index in list(self._batches):
            self.finish_layer_wise_loading(index)
        if self._stream is not None:
            self._stream.synchronize()
        self._queued.clear()
        self._offloads.clear()
        self.layer_done_counter.set_consumer(-1)

    def close(self) -> None:
        """Ends all transfers and drops the store."""
        self.reset()
        self.store = HostPages(self.store.max_pages)
        logger.info("kvstress linker: rank=%d %s faults=%s", self.rank, self.stats, self.faults.injected)

    def _ours(self, transfers: list) -> list:
        return [transfer for transfer in transfers if transfer.name.value in self._sources]

    def _pages_of(self, transfer: Any) -> list[DevicePages]:
        return [pages for pages in self._pages if pages.source == transfer.name.value]

    def _draw(self, direction: TransferKind, who: str) -> TransferFault | None:
        fault = self.faults.draw(direction)
        if fault is not None:
            logger.warning("kvstress linker: rank=%d %s %s %s", self.rank, fault.kind, direction, who)
        return fault

    def _delay_of(self, fault: TransferFault | None) -> float:
        if fault is None:
            return self._delay_s
        return 0.0 if fault.kind == "cancelled" else self._delay_s + fault.delay_us / 1e6

    def _copy_out(self, transfers: list) -> tuple[list[PageBlock | None], Any]:
        """One block a transfer, and the event behind its copies (None: they are done)."""
        rows = [
            [(pages, pages.rows(transfer.device_indices)) for pages in self._pages_of(transfer)]
            for transfer in transfers
        ]
        if self._stream is None:
            return [host_block(parts, pinned=False) for parts in rows], None
        module = torch.get_device_module(self._stream.device)
        written = self.record_offload_ready()
        with module.stream(self._stream):
            for event in written:
                self._stream.wait_event(event)
            blocks = [host_block(parts, pinned=True) for parts in rows]
            event = module.Event()
            event.record()
        for parts in rows:
            for _, taken in parts:
                taken.record_stream(self._stream)
        return blocks, event


def _kv_of(transfers: list) -> Any:
    return next(transfer for transfer in transfers if transfer.name == PoolName.KV)
