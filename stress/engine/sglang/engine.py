"""A real SGLang tree behind the engine contract: its allocator, radix cache, request pool and linker wrapper.

Each verb is upstream's own calls in upstream's order and free groups, a batch where upstream takes a batch. What
differs between releases is asked of the objects (Tree.features), never of a version number. Locks and tombstones
are not observed: the Rust core keeps them to itself. A page size of 1 is another allocator upstream and refused.
"""

from __future__ import annotations

import torch

from stress.check.event import EdgeShape, PoolShape
from stress.engine.contract import Admission, RequestSpec
from stress.engine.sglang.calls import Calls
from stress.engine.sglang.readings import EVICTION_INTERVAL_TOKENS, SglangReadings
from stress.engine.sglang.request import SglangRequest
from stress.engine.unagreed import Unagreed


class SglangEngine(Unagreed, SglangReadings):
    """`calls`: the tree's objects, built by stress.engine.sglang.build."""

    # The tree core keeps splits and recoveries to itself; a release as shipped screens unmapped pages from the group.
    marks_exempt = frozenset({"node_split", "tombstone_recovered", "free_group_with_unmapped"})

    def __init__(self, calls: Calls, *, window_tokens: int, paged_swa: bool, gates_match: bool) -> None:
        self.now_us = 0
        self.calls = calls
        self.page_size = calls.page_size
        self.window_tokens = window_tokens
        self.paged_swa = paged_swa
        self.gates_match = gates_match  # a prefix is found only as far as its window is there
        self.observes = frozenset(
            {"lends", "returns", "mapping", "groups", "tables", "cache", "counts", "drain", "writes"}
            | {"whole_prefix"}
        )
        if paged_swa:
            self.observes |= {"reads"}
        if calls.linker is None or calls.linker.direct.skips_swa:
            # A load of the SWA side alone names no FULL page, so what such a linker moves is not watched.
            self.observes |= {"transfers"}
            if calls.linker is None or calls.features.private_load:
                # Up to 0.5.21 a load may land when its request has left, and nobody knows whose content it is.
                self.observes |= {"content"}
        allocator = calls.allocator
        self.pools = (
            PoolShape("full", allocator.full_attn_allocator.size // self.page_size, self.page_size, 0),
            PoolShape("swa", allocator.swa_attn_allocator.size // self.page_size, self.page_size, 0),
        )
        self.edges = (EdgeShape("full", "swa", no_peer=0),)
        self._specs: dict[int, RequestSpec] = {}
        self._running: dict[int, SglangRequest] = {}
        self._loading: list[SglangRequest] = []
        self._failed: list[int] = []
        self._marks = {
            "load_back": 0,
            "load_failed": 0,
            "linker_loaded_without_swa": 0,
            "spec_tail_returned": 0,
        }
        if calls.linker is not None:
            calls.linker.now = lambda: self.now_us

    @property
    def step(self) -> str:
        return self.calls.step

    # Requests

    def open(self, spec: RequestSpec) -> None:
        self._specs[spec.rid] = spec

    def close(self, rid: int) -> None:
        del self._specs[rid]

    def admit(self, rid: int, spare: int) -> Admission | None:
        calls = self.calls
        if calls.rows.available_size() == 0:
            return None
        request = SglangRequest(self._specs[rid], calls.new_kv())
        if request.spec.restorable is not None:
            calls.linker.mistrusted.add(request.rid)
        calls.match(request)
        calls.lock(request)
        cached = request.prefix_len
        if calls.room()[0] < self._specs[rid].prompt_tokens - cached + spare:
            calls.refuse(request)
            return None
        loaded = calls.load_back(request) if request.host_hit_length else 0
        calls.take_row(request)
        request.swa_from = 0 if self.gates_match else request.prefix_len
        self._running[rid] = request
        if not loaded:
            return Admission(cached, 0, self.now_us)
        self._loading.append(request)
        self._marks["load_back"] += 1
        self._marks["linker_loaded_without_swa"] += calls.linker.direct.skips_swa
        return Admission(cached, loaded, self.now_us + calls.linker.direct.delay_us)

    # Slots

    def extend(self, rows: list[tuple[int, int]]) -> bool:
        batch = [(self._running[rid], upto) for rid, upto in rows]
        for request, upto in batch:
            request.fill_len = request.extend_end = upto
        if not self.calls.lengthen(batch, "prompt"):
            return False
        if self.calls.linker is not None:
            self.calls.cache.ready_to_load_host_cache()
        return True

    def reserve(self, rows: list[tuple[int, int]]) -> bool:
        page_size = self.page_size
        batch = []
        for rid, tokens in rows:
            request = self._running[rid]
            batch.append((request, -(-(request.kv.kv_committed_len + tokens) // page_size) * page_size))
        return self.calls.lengthen(batch, "draft reserve")

    def commit(self, rows: list[tuple[int, int]]) -> None:
        for rid, accepted in rows:
            request = self._running[rid]
            request.kv.kv_committed_len += accepted
            request.learn_outputs()

    def evict(self, full: int, swa: int) -> None:
        self.calls.evict(full, swa)

    # Result processing

    def results_begin(self) -> None:
        self.synchronize()
        self._finish_loads()
        self.calls.allocator.free_group_begin()

    def results_end(self) -> None:
        self.calls.allocator.free_group_end()

    def checkpoint(self, rid: int) -> None:
        self.calls.checkpoint(self._running[rid])

    def evict_windows(self, rids: list[int]) -> None:
        self.calls.allocator.free_group_begin()
        for rid in rids:
            self.calls.evict_window(self._running[rid], EVICTION_INTERVAL_TOKENS)
        self.calls.allocator.free_group_end()

    def finish(self, rid: int) -> None:
        self._leave(rid, checkpoint=True)

    def abort(self, rid: int) -> None:
        self._leave(rid, checkpoint=False)

    def retract(self, rid: int) -> None:
        self._leave(rid, checkpoint=False)

    def _leave(self, rid: int, *, checkpoint: bool) -> None:
        request = self._running[rid]
        if request in self._loading:
            self._loading.remove(request)
        kv = request.kv
        self._marks["spec_tail_returned"] += kv.kv_allocated_len > -(
            -kv.kv_committed_len // self.page_size
        ) * (self.page_size)
        self.calls.release(request, checkpoint=checkpoint)
        del self._running[rid]

    # The linker and the end

    def poll(self) -> int:
        if self.calls.linker is None:
            return 0
        linker = self.calls.linker
        before = linker.offloads_done + linker.loads_done
        if linker.left_behind():
            self.calls.cache.ready_to_load_host_cache()
        self.calls.cache.check_hicache_events()
        if linker.all_loads_ended():
            self._finish_loads()
        return linker.offloads_done + linker.loads_done - before

    def _finish_loads(self) -> None:
        if not self._loading:
            return
        self._loading = []
        failed = [int(rid) for rid in self.calls.finish_loads()]
        self._failed += failed
        self._marks["load_failed"] += len(failed)

    def loads_due_us(self) -> int:
        return self.calls.linker.loads_due_us() if self.calls.linker else 0

    def failed_loads(self) -> list[tuple[int, int]]:
        failed, self._failed = self._failed, []
        return [(rid, 0) for rid in failed if rid in self._running]

    def drain(self) -> None:
        size = (self.pools[0].pages + self.pools[1].pages) * self.page_size
        self.calls.evict(size, 0)

    def synchronize(self) -> None:
        if torch.device(self.calls.allocator.device).type == "cuda":
            torch.cuda.current_stream(self.calls.allocator.device).synchronize()

    def exchange(self) -> bytes:
        return self.calls.linker.direct.exchange() if self.calls.linker else b""

    def learn(self, news: list[bytes]) -> None:
        for additions in news:
            self.calls.linker.direct.learn(additions)
