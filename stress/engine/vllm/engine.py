"""vLLM's KV-cache manager under the verbs of `stress.engine.contract`, as its scheduler calls it.

What differs in kind from an engine with a tree: a prefix is published when its slots are given, so `checkpoint` does
nothing; what left the window goes when slots are given, so no window is ever evicted by a verb of its own; cached
blocks are free blocks, so there is nothing to evict; and one scheduler decides for all ranks of a group, so nothing is
agreed. A request is admitted with the slot of one token, which takes its hit; its first chunk goes on from there.
"""

from __future__ import annotations

from typing import Any

from stress.check.event import PoolShape
from stress.engine.contract import Admission, RequestSpec
from stress.engine.vllm.calls import Calls
from stress.engine.vllm.readings import NEVER, Readings


class Running:
    """A request that has blocks: the tree's `request`, and what it was admitted for."""

    __slots__ = ("request", "spec")

    def __init__(self, spec: RequestSpec, request: Any) -> None:
        self.spec, self.request = spec, request


class VllmEngine(Readings):
    """`max_rows`: requests that may run at once."""

    def __init__(self, calls: Calls, *, max_rows: int) -> None:
        self.now_us = 0
        self.calls = calls
        self.max_rows = max_rows
        self.page_size = calls.page_size
        self.groups = calls.groups
        self.pools = (PoolShape("blocks", len(calls.pool.blocks) - 1, calls.page_size, 0),)
        self.edges = ()
        self._specs: dict[int, RequestSpec] = {}
        self._running: dict[int, Running] = {}

    # Requests

    def open(self, spec: RequestSpec) -> None:
        self._specs[spec.rid] = spec

    def close(self, rid: int) -> None:
        del self._specs[rid]

    def admit(self, rid: int, spare: int) -> Admission | None:
        calls, spec = self.calls, self._specs[rid]
        if len(self._running) >= self.max_rows:
            return None
        request = calls.request(spec)
        match = calls.match(request)
        if self._pages_of(spec.prompt_tokens - match.tokens + spare) > calls.pool.get_num_free_blocks():
            return None
        if not calls.allocate(request, 1, match=match):
            return None
        request.num_computed_tokens = match.tokens
        self._running[rid] = Running(spec, request)
        return Admission(match.tokens, 0, self.now_us)

    def _pages_of(self, tokens: int) -> int:
        """Blocks of all groups that so many tokens need at most at one time."""
        pages = 0
        for group in self.groups:
            held = (
                tokens
                if group.sees_all
                else min(tokens, group.window + group.chunk + self.calls.chunk_tokens)
            )
            pages += -(-held // group.page_size) + 1
        return pages

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
        """All rows or none: what is published with a row's slots can't be taken back."""
        calls = self.calls
        short = sum(self.pages_short(rid, upto) for rid, upto in rows)
        if short > calls.pool.get_num_free_blocks():
            return False
        for rid, upto in rows:
            request = self._running[rid].request
            tokens = upto - request.num_computed_tokens
            given = (
                calls.allocate(request, 1, ahead=tokens - 1) if drafts else calls.allocate(request, tokens)
            )
            if not given:
                raise RuntimeError(
                    f"request {rid} got no slots up to {upto}, with {short} blocks short in all"
                )
        return True

    def commit(self, rows: list[tuple[int, int]]) -> None:
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
        if request.num_computed_tokens < spec.prompt_tokens and known <= spec.prompt_tokens:
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

    def evict_windows(self, rids: list[int]) -> None: ...

    def finish(self, rid: int) -> None:
        self._leave(rid)

    def abort(self, rid: int) -> None:
        self._leave(rid)

    def retract(self, rid: int) -> None:
        self._leave(rid)

    def _leave(self, rid: int) -> None:
        self.calls.free(self._running.pop(rid).request)

    def drain(self) -> None:
        self.calls.manager.reset_prefix_cache()

    # No connector

    def poll(self) -> int:
        return 0

    def loads_due_us(self) -> int:
        return 0

    def failed_loads(self) -> list[tuple[int, int]]:
        return []

    def pending_us(self) -> int | None:
        return None

    def linker(self) -> None:
        return None

    def next_window_eviction(self, rid: int) -> int:
        return NEVER
