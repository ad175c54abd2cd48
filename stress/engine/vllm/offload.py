"""vLLM's CPU offload, its scheduler side, driven as the scheduler does, and the copies that a worker would make.

After each schedule the connector looks for whole pages to store, touches them, and gives them back when the copy has
ended; a load is asked for when a request is matched, and holds the request's new pages. A copy takes `delay_us` of
virtual time and ends in the order in which it began; a store waits for the forward pass that is under way. What the
copies do is told by `on_begin`, `on_copy` and `on_end`.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, NamedTuple

from stress.engine.vllm.calls import Calls
from stress.engine.vllm.features import accepted

WORKERS = 1  # that report the end of a store


class Copy(NamedTuple):
    """One transfer between pages of the pool and pages of the host, pair by pair. `requests`: whose a load is."""

    ticket: int
    kind: str  # "load" or "offload"
    pages: list[int]
    host_pages: list[int]
    event: int
    requests: tuple[str, ...]
    due_us: int


class Offload:
    """`config`: the KVCacheConfig of the pool; `host_pages`: pages in host memory. `stores_wait`: a store waits for
    the forward pass that is under way; False is wrong where that writes what is stored (vllm#45704)."""

    def __init__(
        self, calls: Calls, config: Any, *, host_pages: int, delay_us: int, stores_wait: bool = True
    ) -> None:
        self._calls, self._delay_us, self._stores_wait = calls, delay_us, stores_wait
        self._connector = _connector(calls, config, host_pages)
        self._connector.bind_gpu_block_pool(calls.pool)
        self._copies: deque[Copy] = deque()
        self._known: dict[str, list[int]] = {}  # by request: pages of each table that the connector was told
        self._preempted: list[str] = []  # since the last schedule, as are the finished
        self._finished: list[str] = []
        self._resumed: set[str] = set()
        self._tickets = 0
        self._ended = {"load": 0, "offload": 0}
        self._behind_pass: deque[Copy] = deque()
        self.on_begin: Callable[[Copy], None] = lambda copy: None  # its pages are held
        self.on_copy: Callable[[Copy], None] = lambda copy: None  # its source is read
        self.on_end: Callable[[Copy], None] = lambda copy: None

    @property
    def loads_done(self) -> int:
        return self._ended["load"]

    @property
    def offloads_done(self) -> int:
        return self._ended["offload"]

    def restorable(self, request: Any, cached: int) -> int:
        """Tokens behind the `cached` ones that the host has."""
        return self._connector.get_num_new_matched_tokens(request, cached)[0] or 0

    def allocated(self, request: Any, external: int) -> None:
        """The request has its slots, `external` tokens of them to be loaded."""
        blocks = self._calls.manager.get_blocks(request.request_id)
        self._connector.update_state_after_alloc(request, blocks, external)

    def scheduled(self, tokens: dict[Any, int], now_us: int) -> None:
        """A schedule is complete: so many tokens of each request. Copies begin."""
        meta = self._connector.build_connector_meta(self._scheduler_output(tokens))
        if meta.store_event >= 0:
            pages = list(meta.store_gpu_blocks), list(meta.store_cpu_blocks)
            self._begin("offload", *pages, meta.store_event, (), now_us)
        if meta.load_event >= 0:
            requests = tuple(meta.load_event_to_reqs[meta.load_event])
            pages = list(meta.load_gpu_blocks), list(meta.load_cpu_blocks)
            self._begin("load", *pages, meta.load_event, requests, now_us)

    def _begin(
        self, kind: str, pages: list[int], host: list[int], event: int, requests: tuple[str, ...], now_us: int
    ) -> None:
        self._tickets += 1
        copy = Copy(self._tickets, kind, pages, host, event, requests, now_us + self._delay_us)
        self.on_begin(copy)
        if kind == "load" or not self._stores_wait:
            self.on_copy(copy)
            self._copies.append(copy)
        else:
            self._behind_pass.append(copy)

    def pass_done(self, now_us: int) -> None:
        """The forward pass that was under way has written: what waited for it is stored now."""
        while self._behind_pass:
            copy = self._behind_pass.popleft()._replace(due_us=now_us + self._delay_us)
            self.on_copy(copy)
            self._copies.append(copy)

    def _scheduler_output(self, tokens: dict[Any, int]) -> SimpleNamespace:
        """What the connector reads of a SchedulerOutput: whose first schedule it is, and each one's new pages."""
        first, later, pages_of = [], [], []
        for request in tokens:
            rid = request.request_id
            tables = [self._calls.table(rid, group.name) for group in self._calls.groups]
            known = self._known.get(rid)
            if known is None and rid not in self._resumed:
                first.append(
                    SimpleNamespace(
                        req_id=rid,
                        block_ids=tuple(tables),
                        num_computed_tokens=request.num_computed_tokens,
                    )
                )
            else:
                later.append(rid)
                from_on = known or [0] * len(tables)
                pages_of.append(tuple(t[n:] for t, n in zip(tables, from_on, strict=True)))
            self._known[rid] = [len(table) for table in tables]
        resumed, self._resumed = self._resumed & set(later), self._resumed - set(later)
        return SimpleNamespace(
            scheduled_new_reqs=first,
            scheduled_cached_reqs=SimpleNamespace(
                req_ids=later, new_block_ids=pages_of, resumed_req_ids=resumed
            ),
            num_scheduled_tokens={request.request_id: count for request, count in tokens.items()},
            preempted_req_ids=self._take(self._preempted),
            finished_req_ids=self._take(self._finished),
            kv_connector_block_state=None,
        )

    def _take(self, since: list[str]) -> tuple[str, ...]:
        taken = tuple(dict.fromkeys(since))
        since.clear()
        return taken

    def preempted(self, request: Any) -> None:
        """The request has lost its pages and will come again."""
        rid = request.request_id
        self._preempted.append(rid)
        self._resumed.add(rid)
        self._known.pop(rid, None)

    def finished(self, request: Any) -> None:
        """The request is about to give its pages back for good: what is whole of it may still be stored."""
        rid, calls = request.request_id, self._calls
        self._known.pop(rid, None)
        self._resumed.discard(rid)
        self._finished.append(rid)
        if calls.keeps(rid):
            calls.slide(request)
        self._connector.request_finished_all_groups(request, calls.computed_tables(request))

    def pending_us(self) -> int | None:
        return self._copies[0].due_us if self._copies else None

    @property
    def waits_for_pass(self) -> bool:
        """Whether a store is behind a forward pass that is not done."""
        return bool(self._behind_pass)

    def in_flight(self) -> tuple[int, int]:
        """(loads, offloads) that have not ended."""
        loads = sum(copy.kind == "load" for copy in self._copies)
        return loads, len(self._copies) - loads + len(self._behind_pass)

    def poll(self, now_us: int) -> list[Copy]:
        """Copies that have ended by now; the connector is told."""
        ended = []
        while self._copies and self._copies[0].due_us <= now_us:
            copy = self._copies.popleft()
            self.on_end(self.came(copy))
            self._connector.update_connector_output(self._worker_output(copy))
            self._ended[copy.kind] += 1
            ended.append(copy)
        return ended

    def came(self, copy: Copy) -> Copy:
        """What has come of a copy that has ended, for who watches, before the connector is told."""
        return copy

    def stores_under_way(self) -> list[Copy]:
        """Stores whose end the connector has not been told."""
        return [copy for copy in (*self._copies, *self._behind_pass) if copy.kind == "offload"]

    def _worker_output(self, copy: Copy) -> SimpleNamespace:
        stored = None
        if copy.kind == "offload":
            stored = self._calls.tree.simple_offload_metadata.SimpleCPUOffloadWorkerMetadata({copy.event: 1})
        return SimpleNamespace(
            finished_recving=copy.requests, finished_sending=(), kv_connector_worker_meta=stored
        )


def _connector(calls: Calls, config: Any, host_pages: int) -> Any:
    built = calls.tree.simple_offload.SimpleCPUOffloadScheduler
    pool_bytes = sum(tensor.size for tensor in config.kv_cache_tensors)
    sizes = [group.page_size for group in calls.groups]
    server = SimpleNamespace(
        kv_events_config=None,
        cache_config=SimpleNamespace(block_size=calls.page_size, enable_prefix_caching=True),
        model_config=SimpleNamespace(max_model_len=calls.manager.max_model_len),
        speculative_config=None,
        max_in_flight_tokens=calls.chunk_tokens,
        num_prefill_lookahead_tokens=0,
        scheduler_config=SimpleNamespace(max_num_batched_tokens=calls.chunk_tokens),
        parallel_config=SimpleNamespace(
            decode_context_parallel_size=1,
            prefill_context_parallel_size=1,
            world_size=WORKERS,
            tensor_parallel_size=1,
        ),
    )
    wanted = {
        "vllm_config": server,
        "kv_cache_config": config,
        "cpu_capacity_bytes": -(-pool_bytes * host_pages // config.num_blocks),
        "scheduler_block_size": math.lcm(*sizes),
        "hash_block_size": math.gcd(*sizes),
        "lazy_offload": False,
        "num_cpu_blocks": host_pages,
    }
    return built(**accepted(built, **wanted))
