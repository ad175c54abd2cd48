"""vLLM's own scheduler as an engine: it decides, and is told what a model runner would tell it.

The verbs are those of `stress.engine.scheduling`. One step is under way at a time, as without asynchronous scheduling.
The scheduler counts tokens as computed when it schedules them; `committed` counts them when the pass has run. Which
token is sampled is the plan's; drafts are zeros, for only how many of them are accepted matters to its memory. With a
connector a step's answer has what its workers tell. A request that is aborted while it waits for a load keeps its
blocks until the load has ended: it is `leaving` until then.
"""

from __future__ import annotations

from typing import Any

from stress.check.event import PoolShape
from stress.engine.contract import RequestSpec
from stress.engine.scheduling import Row, Step
from stress.engine.vllm.calls import Calls
from stress.engine.vllm.features import accepted
from stress.engine.vllm.readings import NEVER, Readings
from stress.engine.vllm.step_names import name_steps
from stress.engine.vllm.transfers import Transfers

_REJECTED = -1  # a draft that stands for none
# What the scheduler asks of sampling parameters: nothing ends a request before its length does.
_SAMPLING = {
    "min_tokens": 0,
    "stop_token_ids": [],
    "eos_token_id": None,
    "ignore_eos": True,
    "logprobs": None,
    "num_logprobs": None,
    "repetition_detection": None,
    "routed_experts_prompt_start": 0,
}


class Submitted:
    """A request that the scheduler has: the tree's `request`, and the positions that passes have computed."""

    __slots__ = ("computed", "request", "spec")

    def __init__(self, spec: RequestSpec, request: Any) -> None:
        self.spec, self.request, self.computed = spec, request, 0


class DrivenEngine(Readings):
    """`scheduler`: the tree's; `calls` has its KV-cache manager. `transfers`: of its connector; None: it has none."""

    schedules = True
    marks_exempt = Readings.marks_exempt - {"retracted"}

    def __init__(self, calls: Calls, scheduler: Any, transfers: Transfers | None = None) -> None:
        self.now_us = 0
        self.calls = calls
        self.scheduler = scheduler
        self.transfers = transfers
        self.offload = None if transfers is None else transfers.workers
        self.page_size = calls.page_size
        self.groups = calls.groups
        self.pools = (PoolShape("blocks", len(calls.pool.blocks) - 1, calls.page_size, 0),)
        self.edges = ()
        self.changed: list[int] = []  # a step's tables are told for all requests that have any
        self._specs: dict[int, RequestSpec] = {}
        self._running: dict[int, Submitted] = {}
        self._loading: dict[int, Submitted] = {}
        self._submitted: dict[int, Submitted] = {}
        self._leaving: dict[int, Submitted] = {}
        self._let_go: list[int] = []
        self._output: Any = None  # of the step that is under way
        if transfers is not None:
            self.observes = self.observes | {"transfers"}
            self.marks_exempt = self.marks_exempt - {"load_back", "offloaded", "load_failed"}
        name_steps(calls, scheduler)

    # Requests

    def open(self, spec: RequestSpec) -> None:
        self._specs[spec.rid] = spec

    def close(self, rid: int) -> None:
        del self._specs[rid]

    def submit(self, rid: int, priority: int) -> None:
        spec = self._specs[rid]
        request = self.calls.request(
            spec,
            sampling=_SAMPLING | {"max_tokens": spec.output_tokens},
            priority=priority,
            arrival_time=self.now_us / 1_000_000,
        )
        self._submitted[rid] = Submitted(spec, request)
        self.scheduler.add_request(request)

    def abort(self, rid: int) -> None:
        status = self.calls.tree.request.RequestStatus.FINISHED_ABORTED
        self.calls.step = "release"
        self.scheduler.finish_requests(str(rid), status)
        self.calls.step = ""
        self._forget(rid)

    def _forget(self, rid: int) -> None:
        submitted = self._submitted.pop(rid)
        self._running.pop(rid, None)
        self._loading.pop(rid, None)
        if str(rid) in self.scheduler.requests:
            self._leaving[rid] = submitted

    # A step

    def schedule(self) -> Step:
        output = self._output = self.scheduler.schedule()
        drafts = output.scheduled_spec_decode_tokens
        rows = tuple(
            self._row(int(name), tokens, drafts.get(name, ()))
            for name, tokens in output.num_scheduled_tokens.items()
        )
        preempted = tuple(sorted(int(name) for name in output.preempted_req_ids or ()))
        for rid in preempted:
            self._running.pop(rid, None)
            self._submitted[rid].computed = 0
        for row in rows:
            self._running[row.rid] = self._submitted[row.rid]
            self._running[row.rid].computed = row.start
            self._loading.pop(row.rid, None)
        if self.transfers is not None:
            loading = self.transfers.begin(output, self.now_us)
            self._loading.update((rid, self._submitted[rid]) for rid in loading)
            self.changed += loading
        return Step(rows, preempted)

    def _row(self, rid: int, tokens: int, drafts: list[int]) -> Row:
        request = self._submitted[rid].request
        start = request.num_computed_tokens - tokens
        samples = start + tokens - len(drafts) >= request.num_tokens
        padding = sum(token == _REJECTED for token in drafts)
        return Row(rid, start, tokens - padding, len(drafts) - padding, samples)

    def commit(self, rows: list[tuple[int, int]]) -> None:
        for rid, accepted_tokens in rows:
            self._running[rid].computed += accepted_tokens

    def update(self, rows: list[tuple[int, int]]) -> tuple[int, ...]:
        output, self._output = self._output, None
        copied = None if self.transfers is None else self.transfers.answer(self.now_us)
        self.scheduler.update_from_output(output, self._sampled(output, dict(rows), copied))
        finished = [rid for rid, _ in rows if str(rid) not in self.scheduler.requests]
        # Whose load has failed, where that ends a request.
        finished += sorted(rid for rid, one in self._loading.items() if one.request.is_finished())
        for rid in finished:
            self._forget(rid)
        for rid in [rid for rid in self._leaving if str(rid) not in self.scheduler.requests]:
            del self._leaving[rid]
            self._let_go.append(rid)
        self._draft([rid for rid, sampled in rows if sampled and rid in self._running])
        return tuple(finished)

    def _sampled(self, output: Any, sampled: dict[int, int], copied: Any) -> Any:
        """The model runner's answer for all rows of the step; aborted ones are passed over by the scheduler. `copied`:
        what the connector's workers tell."""
        names = list(output.num_scheduled_tokens)
        tokens = [self._tokens(int(name), sampled.get(int(name), 0)) for name in names]
        kind = self.calls.tree.outputs.ModelRunnerOutput
        wanted = {
            "req_ids": names,
            "req_id_to_index": {name: index for index, name in enumerate(names)},
            "sampled_token_ids": tokens,
            "logprobs": None,
            "prompt_logprobs_dict": {},
            "pooler_output": [],
            "kv_connector_output": copied,
        }
        return kind(**accepted(kind, **wanted))

    def _tokens(self, rid: int, count: int) -> list[int]:
        if not count:
            return []
        spec, known = self._submitted[rid].spec, self._submitted[rid].request.num_tokens
        return spec.tokens(known, known + count).tolist()

    def _draft(self, rids: list[int]) -> None:
        """What the drafter proposes for the next step."""
        drafts = self.scheduler.num_spec_tokens
        if drafts and rids:
            proposed = [[0] * drafts for _ in rids]
            kind = self.calls.tree.outputs.DraftTokenIds
            self.scheduler.update_draft_token_ids(kind([str(rid) for rid in rids], proposed))

    def committed(self, rid: int) -> int:
        running = self._running.get(rid)
        return 0 if running is None else running.computed

    def drain(self) -> None:
        self.scheduler.reset_prefix_cache()

    # Transfers

    def pending_us(self) -> int | None:
        return None if self.transfers is None else self.transfers.pending_us(self.now_us)

    def failures_told(self) -> int:
        return 0 if self.offload is None else self.offload.failures_told

    def never_told_us(self) -> int | None:
        return None if self.offload is None else self.offload.never_told_us()

    def transfer_of(self, rid: int) -> str:
        return "" if self.transfers is None else self.transfers.of(rid)

    def take_let_go(self) -> list[int]:
        taken, self._let_go = self._let_go, []
        return taken

    def kept_of(self, rid: int) -> tuple[int, int, int]:
        return (0, 0, 0) if rid in self._leaving else (0, 0, int(self.calls.keeps(str(rid))))

    def leftover(self) -> tuple[int, int, int, int, int]:
        *others, requests = super().leftover()
        return (*others, requests + len(self._leaving))

    def copied(self) -> dict[str, int]:
        ended = self.offload.ended
        return {
            "load_back": ended["load"],
            "offloaded": ended["offload"],
            "load_failed": ended["failed"],
        }

    def linker(self) -> Any:
        return self.offload

    # What there is none of

    def poll(self) -> int:
        return 0

    def loads_due_us(self) -> int:
        return 0

    def failed_loads(self) -> list[tuple[int, int]]:
        return []

    def next_window_eviction(self, rid: int) -> int:
        return NEVER
