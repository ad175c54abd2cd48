"""Run as a script, with a tree's root and core: serves requests through the plugin, prints one JSON line of it.

Everything but the plugin is the tree's own: factory, linker wrapper, radix cache, allocator, KV pools, release.
"""

import json
import os
import sys
import time

import numpy as np
import torch

from stress.engine.contract import RequestSpec
from stress.engine.sglang.calls import Calls
from stress.engine.sglang.null_kv_pool import null_kv_pool
from stress.engine.sglang.request import SglangRequest
from stress.engine.sglang.tree_import import load_tree, tree_core_of

PAGE = 16
WINDOW = 32
FULL_TOKENS, SWA_TOKENS = 512, 256
PROMPT = 8 * PAGE + 1
STARTS = {"full": 10_000, "swa": 20_000}


class Server:
    """One rank's cache with the plugin, driven in the scheduler's order."""

    def __init__(self, tree, kvcache, extra_config, *, is_skipping, group=None):
        self.tree, self.kvcache = tree, kvcache
        self.rows = tree.ReqToTokenPool(8, 1024, "cpu", False)
        self.allocator = tree.SWATokenToKVPoolAllocator(
            size=FULL_TOKENS,
            size_swa=SWA_TOKENS,
            page_size=PAGE,
            dtype=torch.float32,
            device="cpu",
            kvcache=kvcache,
            need_sort=False,
            req_to_token_pool=self.rows,
        )
        params = tree.CacheInitParams(
            disable=False,
            req_to_token_pool=self.rows,
            token_to_kv_pool_allocator=self.allocator,
            page_size=PAGE,
            sliding_window_size=WINDOW,
            tree_components=(tree.ComponentType.FULL, tree.ComponentType.SWA),
            swa_gates_prefix_match=not is_skipping,
            attn_tp_cache_group=group,
        )
        self.cache = tree.UnifiedRadixCache(params)
        self.linker = plugin(params, set(self.cache.components), extra_config)
        self.cache.init_cache_linker(self.linker)
        self.calls = Calls(tree, self.allocator, self.cache, self.rows, self.linker, WINDOW)
        self.offload_results = []
        pop = self.linker.pop_completed_offload
        self.linker.pop_completed_offload = lambda: (
            self.offload_results.append(pop()) or self.offload_results[-1]
        )

    def serve(self, rid, base, *, while_running=None, before_batch=None):
        """One request from its match to its release; what upstream decided about it."""
        spec = RequestSpec(
            rid, 0, PROMPT, 1, np.zeros(0, np.int64), lambda lo, hi: np.arange(base + lo, base + hi)
        )
        request, calls = SglangRequest(spec, self.calls.new_kv()), self.calls
        request.discard_output_reason = None
        calls.match(request)
        calls.lock(request)
        cached = request.prefix_len
        loaded = calls.load_back(request) if request.host_hit_length else 0
        calls.take_row(request)
        if before_batch is not None:
            before_batch(request)
        calls.lengthen([(request, PROMPT)], "prompt")
        index = self.cache.ready_to_load_host_cache()
        self.linker.layer_done_counter.set_consumer(index)
        if while_running is not None:
            while_running(request)
        if hasattr(self.cache, "finish_external_linker_loads"):  # since 0.5.22; before, a poll takes loads in
            self.cache.finish_external_linker_loads([request])
        self.allocator.free_group_begin()
        request.kv.kv_committed_len = PROMPT
        request.learn_outputs()
        failed = request.discard_output_reason is not None
        if not failed:
            calls.checkpoint(request)
        calls.release(request, checkpoint=not failed)
        self.allocator.free_group_end()
        return {"cached": cached, "loaded": loaded, "index": index, "failed": failed}

    def settle(self):
        """Acknowledges what has ended; how many offloads are still under way."""
        self.cache.check_hicache_events()
        return len(self.cache.linker.pending_offloads)

    def evict_all(self):
        """Empties the device cache; (FULL, SWA) tokens that did not come back."""
        self.calls.evict(FULL_TOKENS, 0)
        self.calls.evict(0, SWA_TOKENS)
        free_swa = self.allocator.swa_attn_allocator.available_size()
        return [FULL_TOKENS - self.allocator.full_available_size(), SWA_TOKENS - free_swa]


def plugin(params, components, extra_config):
    """The tree's factory builds it."""
    from sglang.srt.mem_cache.unified_cache.linker_factory import create_unified_cache_linker

    config = {
        "linker": "KvStressLinker",
        "linker_module_path": "linker.sglang_plugin",
        "linker_extra_config": extra_config,
    }
    return create_unified_cache_linker(
        None, params, backend="dynamic", config=config, components=components, forward_stream=None
    )


def real_pool(tree):
    """The tree's SWAKVPool: layers 1 and 3 are FULL, 0 and 2 SWA."""
    from sglang.srt.mem_cache.swa_memory_pool import SWAKVPool

    return SWAKVPool(
        size=FULL_TOKENS,
        size_swa=SWA_TOKENS,
        swa_attention_layer_ids=[0, 2],
        full_attention_layer_ids=[1, 3],
        **pool_settings(),
    )


def pool_settings():
    from sglang.srt.mem_cache import memory_pool

    # A pool asks the class whether it is quantized; its own module needs the server's layers.
    class Unquantized(memory_pool.UnquantizedKVCacheMethod):
        pass

    return {
        "page_size": PAGE,
        "dtype": torch.float32,
        "head_num": 2,
        "head_dim": 4,
        "device": "cpu",
        "enable_memory_saver": False,
        "quant_method": Unquantized(),
    }


def plain_pools(tree):
    """What the plugin makes of a plain MHA pool, of a scaled one, of an unknown one and of one with a draft."""
    from types import SimpleNamespace

    from sglang.srt.mem_cache.memory_pool import MHATokenToKVPool

    from linker.sglang_pools import device_pages

    class Unknown(MHATokenToKVPool):
        pass

    def made(kind, draft=(), scales=None):
        pool = kind(size=FULL_TOKENS, layer_num=3, **pool_settings())
        pool.k_scale_buffer = scales
        params = SimpleNamespace(page_size=PAGE, sidecar_draft_device_pools=draft, mtp_draft_device_pools=())
        try:
            pages, layers = device_pages(pool, params, {tree.ComponentType.FULL})
            return [layers, [(part.name, part.rows_a_page, sorted(part.layers)) for part in pages]]
        except ValueError as error:
            return str(error)

    return {
        "plain": made(MHATokenToKVPool),
        "scaled": made(MHATokenToKVPool, scales=[torch.zeros(1)]),
        "draft": made(MHATokenToKVPool, draft=(object(),)),
        "unknown": made(Unknown),
    }


def buffers(kvcache, part):
    pool = kvcache.full_kv_pool if part == "full" else kvcache.swa_kv_pool
    return [*pool.k_buffer, *pool.v_buffer]


def slots_of(server, request, part, start, end):
    row = server.rows.req_to_token[request.kv.req_pool_idx, start:end].to(torch.int64)
    return row if part == "full" else server.allocator.full_to_swa_index_mapping[row]


def fill(server, request, start, end):
    """What a forward writes: each position, buffer and pool has a value of its own."""
    for part, first in STARTS.items():
        for number, buffer in enumerate(buffers(server.kvcache, part)):
            values = first + 1000 * number + torch.arange(start, end, dtype=torch.float32)
            buffer[slots_of(server, request, part, start, end)] = values[:, None, None]


def kept(server, request, part, start, end):
    """Positions of [start, end) that hold what `fill` wrote, in every buffer of the pool."""
    good = torch.ones(end - start, dtype=torch.bool)
    for number, buffer in enumerate(buffers(server.kvcache, part)):
        values = STARTS[part] + 1000 * number + torch.arange(start, end, dtype=torch.float32)
        rows = buffer[slots_of(server, request, part, start, end)]
        good &= (rows == values[:, None, None]).flatten(1).all(1)
    return int(good.sum())


def wipe(server):
    for part in STARTS:
        for buffer in buffers(server.kvcache, part):
            buffer.zero_()


def index_run(tree, pools, faults=(), group=None, **extra):
    """A computes and is offloaded, the device is emptied, then B, C, D match the same prefix."""
    extra_config = {"store_pages": 64, "pools": pools, "faults": list(faults), **extra}
    server = Server(tree, null_kv_pool(tree), extra_config, is_skipping="swa" not in pools, group=group)
    steps = [server.serve(1, 0)]
    pending = [server.settle()]
    leaks = [server.evict_all()]
    for rid in (2, 3, 4):
        steps.append(server.serve(rid, 0))
        pending.append(server.settle())
        leaks.append(server.evict_all())
    rows_left = 8 - server.rows.available_size()
    return {
        "steps": steps,
        "pending": pending,
        "leaks": leaks,
        "rows_left": rows_left,
        "offloads": server.offload_results,
        "stored": len(server.linker.store),
        "skips_swa": server.cache.linker._skip_swa,
        "private": len(server.cache.linker.private_load_indices),
        "stats": server.linker.stats,
    }


def content_run(tree, pools, faults=(), delay_ms=0.0):
    """The same with the tree's own CPU tensors: what B reads is what A wrote."""
    extra_config = {"store_pages": 64, "faults": list(faults), "delay_ms": delay_ms}
    if pools is not None:
        extra_config["pools"] = pools
    server = Server(tree, real_pool(tree), extra_config, is_skipping=pools == ["kv"])
    server.kvcache.register_layer_transfer_counter(server.linker.layer_done_counter)
    server.serve(1, 0, while_running=lambda request: fill(server, request, 0, PROMPT))
    time.sleep(delay_ms / 1000)
    server.settle()
    leaks = [server.evict_all()]
    wipe(server)
    seen = {}

    def look(request):
        loaded = 8 * PAGE
        seen["early"] = kept(server, request, "full", 0, loaded)
        for layer in range(4):
            server.kvcache.get_key_buffer(layer)
        seen["full"] = kept(server, request, "full", 0, loaded)
        seen["swa"] = kept(server, request, "swa", loaded - WINDOW, loaded)

    step = server.serve(2, 0, while_running=look)
    time.sleep(delay_ms / 1000)
    server.settle()
    leaks.append(server.evict_all())
    names = sorted(name.value for name in server.linker.pools)
    return {"step": step, "seen": seen, "leaks": leaks, "pools": names, "offloads": server.offload_results}


def bounded_run(tree):
    """A store smaller than a prefix keeps its head; a page that leaves between match and load fails the load."""
    server = Server(tree, null_kv_pool(tree), {"store_pages": 5, "pools": ["kv"]}, is_skipping=True)
    server.serve(1, 0)
    server.settle()
    server.evict_all()
    head = server.serve(2, 0)
    server.settle()
    server.evict_all()
    lookup = server.linker.lookup

    def lookup_then_lose(rid, transfers):
        found = lookup(rid, transfers)
        server.linker.store._pages.popitem(last=False)
        return found

    server.linker.lookup = lookup_then_lose
    lost = server.serve(3, 0)
    server.settle()
    return {"head": head, "lost": lost, "leaks": server.evict_all(), "stored": len(server.linker.store)}


def abort_run(tree):
    """A request that leaves before its batch starts: its queued load is cancelled, its slots come back."""
    server = Server(tree, null_kv_pool(tree), {"store_pages": 64, "pools": ["kv"]}, is_skipping=True)
    server.serve(1, 0)
    server.settle()
    server.evict_all()
    spec = RequestSpec(2, 0, PROMPT, 1, np.zeros(0, np.int64), lambda lo, hi: np.arange(lo, hi))
    request = SglangRequest(spec, server.calls.new_kv())
    server.calls.match(request)
    server.calls.lock(request)
    loaded = server.calls.load_back(request)
    server.calls.take_row(request)
    queued = len(server.linker._queued)
    server.calls.release(request, checkpoint=False)
    left = len(server.linker._queued)
    again = server.serve(3, 0)
    server.settle()
    return {"loaded": loaded, "queued": queued, "left": left, "again": again, "leaks": server.evict_all()}


def group_run():
    """Upstream's own list of a model's pools: rows that are pages, several buffers a layer."""
    from sglang.srt.mem_cache.hicache_storage import PoolName
    from sglang.srt.mem_cache.hybrid_cache.linker_pool_assembler import DevicePoolEntry, DevicePoolGroup

    from linker.sglang_pools import pages_of_group

    by_slot = [torch.zeros(4 * PAGE, 3) for _ in range(2)]
    by_page = [torch.zeros(4, 5, dtype=torch.bfloat16) for _ in range(3)]
    entries = [
        DevicePoolEntry(
            name=name,
            indices_from_pool=PoolName.KV,
            device_pool=None,
            components=[held],
            layer_mapping=mapping,
            page_size=PAGE,
            rows_are_pages=is_paged,
        )
        for name, held, mapping, is_paged in (
            (PoolName.KV, by_slot, {0: 0, 1: 1}, False),
            (PoolName.INDEXER, by_page, {1: (0, 2)}, True),
        )
    ]
    slots = torch.cat([torch.arange(3 * PAGE, 4 * PAGE), torch.arange(PAGE, 2 * PAGE)])
    return [
        {
            "name": pages.name,
            "source": pages.source,
            "layers": {layer: len(group) for layer, group in pages.layers.items()},
            "rows": pages.rows(slots)[:: pages.rows_a_page].tolist(),
            "rows_a_page": pages.rows_a_page,
        }
        for pages in pages_of_group(DevicePoolGroup(entries, 2, PAGE))
    ]


def refusals(tree):
    said = {}
    for name, extra in {
        "unknown_key": {"store_pages": 4, "delya_ms": 1},
        "no_bound": {},
        "no_kv": {"store_pages": 4, "pools": ["swa"]},
        "no_such_pool": {"store_pages": 4, "pools": ["kv", "mamba"]},
        "lost_for_good": {"store_pages": 4, "faults": [{"kind": "lost"}]},
        "rank_env": {"store_pages": 4, "rank_env": "KVSTRESS_TEST_NO_SUCH_RANK"},
    }.items():
        try:
            Server(tree, null_kv_pool(tree), extra, is_skipping=True)
            said[name] = "built"
        except ValueError as error:
            said[name] = str(error)
    return said


def rank_run(tree, rank, rendezvous):
    """One of two ranks of an attention-TP group; a load fails on rank 1 alone."""
    torch.distributed.init_process_group("gloo", init_method=f"file://{rendezvous}", rank=rank, world_size=2)
    group = torch.distributed.group.WORLD
    answers = index_run(tree, ["kv"], [{"kind": "failed-load", "ranks": [1], "after": 1, "count": 1}], group)
    torch.distributed.destroy_process_group()
    return answers


def main(root, core, rank=None, rendezvous=None):
    tree = load_tree(root, core)
    if rank is not None:
        print(json.dumps(rank_run(tree, int(rank), rendezvous)), flush=True)
        # Upstream's cache still holds the group, whose threads can abort the interpreter's own shutdown.
        os._exit(0)
    second_load = {"kind": "failed-load", "after": 1, "count": 1}
    answers = {
        "core": tree_core_of(Server(tree, null_kv_pool(tree), {"store_pages": 1}, is_skipping=False).cache),
        "kv": index_run(tree, ["kv"], [second_load]),
        "kv_swa": index_run(tree, ["kv", "swa"], [second_load]),
        "other_rank": index_run(tree, ["kv"], [second_load | {"ranks": [3]}]),
        "offload_failed": index_run(tree, ["kv"], [{"kind": "failed-offload", "count": 1}]),
        "offload_short": index_run(tree, ["kv"], [{"kind": "short-offload", "count": 1}]),
        "content": content_run(tree, None),
        "content_kv": content_run(tree, ["kv"]),
        "content_late": content_run(tree, None, delay_ms=30.0),
        "content_short": content_run(tree, None, [{"kind": "short-load"}]),
        "content_failed": content_run(tree, None, [{"kind": "failed-load"}]),
        "bounded": bounded_run(tree),
        "abort": abort_run(tree),
        "group": group_run(),
        "pools": plain_pools(tree),
        "refused": refusals(tree),
    }
    print(json.dumps(answers))


if __name__ == "__main__":
    main(*sys.argv[1:])
