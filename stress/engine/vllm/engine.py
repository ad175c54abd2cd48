"""vLLM's KV-cache manager under the verbs of `stress.engine.contract`, as its scheduler calls it.

What differs in kind from an engine with a tree: a prefix is published when its slots are given, so `checkpoint` does
nothing; what left the window goes when slots are given, so no window is ever evicted by a verb of its own; cached
blocks are free blocks, so there is nothing to evict; and one scheduler decides for all ranks of a group, so nothing is
agreed. A request is admitted with the slot of one token, which takes its hit; its first chunk goes on from there. One
whose prefix is in the host's memory is first refused, holding its slots until the load has ended.
"""

from __future__ import annotations

from typing import Any

from stress.check.event import PoolShape
from stress.engine.contract import RequestSpec
from stress.engine.vllm.admission import Admissions, Running
from stress.engine.vllm.calls import Calls
from stress.engine.vllm.offload import Offload
from stress.engine.vllm.readings import NEVER, Readings


class VllmEngine(Admissions, Readings):
    """`max_rows`: requests that may run at once. `offload`: to the host's memory; None: there is no connector."""

    def __init__(self, calls: Calls, offload: Offload | None, *, max_rows: int) -> None:
        self.now_us = 0
        self.calls = calls
        self.offload = offload
        self.max_rows = max_rows
        self.page_size = calls.page_size
        self.groups = calls.groups
        self.pools = (PoolShape("blocks", len(calls.pool.blocks) - 1, calls.page_size, 0),)
        self.edges = ()
        self._specs: dict[int, RequestSpec] = {}
        self._running: dict[int, Running] = {}
        self._loading: dict[int, Running] = {}
        self._landed: set[int] = set()
        self._requests: dict[int, Any] = {}
        self._closed: list[int] = []
        self.changed: list[int] = []
        self._scheduled: dict[Any, int] = {}  # tokens of each request in the schedule at hand
        self._passed = False  # a pass has written since a schedule was last complete
        self.observes = self.observes | {"publications"}
        if offload is not None:
            self.observes = self.observes | {"transfers"}
            self.marks_exempt = self.marks_exempt - {"load_back", "offloaded"}

    # Requests

    def open(self, spec: RequestSpec) -> None:
        self._specs[spec.rid] = spec

    def close(self, rid: int) -> None:
        del self._specs[rid]
        if rid in self._requests:
            self._closed.append(rid)  # for good, unless it is opened again before the next verb

    # Slots

    def extend(self, rows: list[tuple[int, int]]) -> bool:
        return self._lengthen(rows, drafts=False)

    def reserve(self, rows: list[tuple[int, int]]) -> bool:
        size, targets = self.page_size, []
        for rid, tokens in rows:
            computed = self._running[rid].request.num_computed_tokens
            targets.append((rid, -(-(computed + tokens) // size) * size))
        return self._lengthen(targets, drafts=True)

    def _lengthen(self, rows: list[tuple[int, int]], *, drafts: bool) -> bool:
        """All rows or none: what is published with a row's slots can't be taken back. What left the window goes first,
        as it does where there is no room."""
        calls = self.calls
        for rid, _ in rows:
            calls.slide(self._running[rid].request)
        short = sum(self.pages_short(rid, upto) for rid, upto in rows)
        alone = len(rows) == len(self._running)
        while short > calls.pool.get_num_free_blocks():
            if not (alone and self._give_back_loaded()):
                return False
        for rid, upto in rows:
            request = self._running[rid].request
            tokens = upto - request.num_computed_tokens
            now = 1 if drafts else tokens
            if not calls.allocate(request, now, ahead=tokens - now):
                raise RuntimeError(
                    f"request {rid} got no slots up to {upto}, with {short} blocks short in all"
                )
            self._scheduled[request] = now
        return True

    def commit(self, rows: list[tuple[int, int]]) -> None:
        self._end_schedule()
        for rid, accepted in rows:
            running = self._running[rid]
            request, spec = running.request, running.spec
            computed = request.num_computed_tokens
            upto = computed + accepted
            if self.pages_short(rid, upto):
                raise ValueError(f"commit: request {rid} has no slots for {upto} positions; reserve first")
            if computed >= spec.prompt_tokens:
                self._decode_to(running, upto)
            request.num_computed_tokens = upto
            self._sample(running, upto + 1)
        self._passed = True

    def _end_schedule(self) -> None:
        """The forward pass of what was given slots begins: the connector is told what it will compute. What the pass
        before has written is there."""
        scheduled, self._scheduled = self._scheduled, {}
        self._end_closed()
        if self.offload is None:
            return
        if self._passed or not self._running:
            self._passed = False
            self.offload.pass_done(self.now_us)
        if scheduled:
            self.calls.step = "offload scan"
            self.offload.scheduled(scheduled, self.now_us)
            self.calls.step = ""

    def _decode_to(self, running: Running, upto: int) -> None:
        """Steps in which nothing else happens come as one: their tokens are known, and pages that they fill are
        published as the scheduler would have, before they are computed."""
        request, size = running.request, self.page_size
        self._sample(running, upto)
        if request.num_computed_tokens // size != upto // size:
            self.calls.allocate(request, upto - request.num_computed_tokens)

    def _sample(self, running: Running, known: int) -> None:
        """The request's output is known up to `known` tokens in all, once its prompt is computed."""
        request, spec = running.request, running.spec
        if request.num_computed_tokens < spec.prompt_tokens:
            return
        end = min(known, spec.prompt_tokens + spec.output_tokens)
        if end > request.num_tokens:
            self.calls.append(request, spec.tokens(request.num_tokens, end))

    def evict(self, full: int, swa: int) -> None:
        """Cached blocks are in the free queue already."""

    # Result processing

    def results_begin(self) -> None:
        """The step is over; the next one starts with its results."""
        if self.calls.tree.features.new_step_starts:
            self.calls.manager.new_step_starts()

    def results_end(self) -> None: ...

    def checkpoint(self, rid: int) -> None:
        """What is computed was published when its slots were given."""

    def evict_windows(self, rids: list[int]) -> None:
        """A step of these requests: what left the window goes as the next token gets its slot, if it has one."""
        for rid in rids:
            request = self._running[rid].request
            if not self.pages_short(rid, request.num_computed_tokens + 1):
                self.calls.allocate(request, 1)
                self._scheduled[request] = 1

    def finish(self, rid: int) -> None:
        self._leave(rid)

    def abort(self, rid: int) -> None:
        self._leave(rid)

    def _leave(self, rid: int) -> None:
        self._end_schedule()
        self._end_request(self._running.pop(rid).request)

    def retract(self, rid: int) -> None:
        request = self._running.pop(rid).request
        self._scheduled.pop(request, None)
        self.calls.preempt(request)
        if self.offload is not None:
            self.offload.preempted(request)

    def drain(self) -> None:
        self._end_closed()
        self.calls.manager.reset_prefix_cache()

    # The connector

    def poll(self) -> int:
        if self.offload is None:
            return 0
        self._end_schedule()
        self.calls.step = "copy done"
        ended = self.offload.poll(self.now_us)
        self.calls.step = ""
        self._landed.update(int(rid) for copy in ended for rid in copy.requests)
        return len(ended)

    def pending_us(self) -> int | None:
        if self.offload is None:
            return None
        if self.offload.waits_for_pass and not self._running:
            return self.now_us
        return self.offload.pending_us()

    def loads_due_us(self) -> int:
        return 0

    def failed_loads(self) -> list[tuple[int, int]]:
        return []

    def linker(self) -> Offload | None:
        return self.offload

    def next_window_eviction(self, rid: int) -> int:
        """With a connector each page's end counts: in the step behind it there is something new to store."""
        if self.offload is None:
            return NEVER
        return (self.committed(rid) // self.page_size + 1) * self.page_size
