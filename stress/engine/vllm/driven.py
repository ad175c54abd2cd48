"""vLLM's own scheduler as an engine: it decides, and is told what a model runner would tell it.

The verbs are those of `stress.engine.scheduling`. One step is under way at a time, as without asynchronous scheduling.
The scheduler counts tokens as computed when it schedules them; `committed` counts them when the pass has run. Which
token is sampled is the plan's; drafts are zeros, for only how many of them are accepted matters to its memory.
"""

from __future__ import annotations

import functools
from typing import Any

from stress.check.event import PoolShape
from stress.engine.contract import RequestSpec
from stress.engine.scheduling import Row, Step
from stress.engine.vllm.calls import Calls
from stress.engine.vllm.features import accepted
from stress.engine.vllm.readings import NEVER, Readings

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
    """`scheduler`: the tree's; `calls` has its KV-cache manager."""

    schedules = True
    offload = None
    marks_exempt = Readings.marks_exempt - {"retracted"}

    def __init__(self, calls: Calls, scheduler: Any) -> None:
        self.now_us = 0
        self.calls = calls
        self.scheduler = scheduler
        self.page_size = calls.page_size
        self.groups = calls.groups
        self.pools = (PoolShape("blocks", len(calls.pool.blocks) - 1, calls.page_size, 0),)
        self.edges = ()
        self.changed: list[int] = []  # a step's tables are told for all requests that have any
        self._specs: dict[int, RequestSpec] = {}
        self._running: dict[int, Submitted] = {}
        self._loading: dict[int, Submitted] = {}
        self._submitted: dict[int, Submitted] = {}
        self._output: Any = None  # of the step that is under way
        _tell_steps(calls, scheduler)

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
        del self._submitted[rid]
        self._running.pop(rid, None)

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
        self.scheduler.update_from_output(output, self._sampled(output, dict(rows)))
        finished = tuple(rid for rid, _ in rows if str(rid) not in self.scheduler.requests)
        for rid in finished:
            self._forget(rid)
        self._draft([rid for rid, sampled in rows if sampled and rid in self._running])
        return finished

    def _sampled(self, output: Any, sampled: dict[int, int]) -> Any:
        """The model runner's answer for all rows of the step; aborted ones are passed over by the scheduler."""
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

    # What there is none of

    def poll(self) -> int:
        return 0

    def pending_us(self) -> int | None:
        return None

    def loads_due_us(self) -> int:
        return 0

    def failed_loads(self) -> list[tuple[int, int]]:
        return []

    def linker(self) -> None:
        return None

    def next_window_eviction(self, rid: int) -> int:
        return NEVER


def _tell_steps(calls: Calls, scheduler: Any) -> None:
    """What of a schedule is going on: `calls.step` says it while a method runs."""
    manager = calls.manager
    for owner, name, step in (
        (manager, "get_computed_blocks", "match"),
        (manager, "allocate_slots", "slots"),
        (scheduler, "_preempt_request", "preemption"),
    ):
        setattr(owner, name, _in_step(calls, step, getattr(owner, name)))


def _in_step(calls: Calls, step: str, inner: Any) -> Any:
    @functools.wraps(inner)
    def call(*args, **kwargs):
        before, calls.step = calls.step, step
        try:
            return inner(*args, **kwargs)
        finally:
            calls.step = before

    return call
