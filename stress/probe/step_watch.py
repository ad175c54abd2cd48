"""Watches an engine that schedules by itself: a step's slots, what they promise, and the tables of all whom it touches.

Such an engine publishes a request's prefix when it gives the slots, before the pass that writes it, so that a request
behind it in the same step may find it. Told is what each allocation will have written, and that it will not be where
its request loses its slots in the same operation: `allocate_slots` and `free` of the manager are wrapped for that, by
name and on the instance. Changes nothing that the target does.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable

from stress.check.event import EventKind
from stress.content import GroupContent
from stress.engine.scheduling import scheduled_in
from stress.operation import Kind
from stress.probe.block_watch import BlockWatch
from stress.probe.group_watch import GroupWatch

_PROMISED, _WITHDRAWN = EventKind.PROMISED, EventKind.WITHDRAWN
_LETS_GO = ("free", "pop_blocks_for_free")


class StepWatch:
    """`engine.allocators()` is the manager. What is told goes through `watch`, tables through `requests`."""

    def __init__(self, engine, watch: BlockWatch, requests: GroupWatch, content: GroupContent | None) -> None:
        self._engine, self._watch, self._requests, self._content = engine, watch, requests, content
        self._promised: dict[int, list[tuple[str, list[int]]]] = {}  # by request, in the operation at hand
        self._operation = 0
        self._started: set[int] = set()  # requests that run, as far as steps have said
        self._found: dict[int, int] = {}
        manager = engine.allocators()
        self._wrap(manager, "allocate_slots", self._allocating)
        for name in _LETS_GO:
            if hasattr(manager, name):
                self._wrap(manager, name, self._letting_go)

    def after(self, kind: Kind, answer: tuple[int, ...] | None) -> list[int]:
        """The operation is over, or it raised: tables that have changed are told. Returns requests that have ended."""
        requests = self._requests
        rids = sorted(requests.holding().union(self._engine.running()))
        requests.tell_tables(tuple((rid, 0) for rid in rids))
        if answer is None:
            return []
        if kind is Kind.UPDATE:
            ended = list(answer[1:])
            self._started.difference_update(ended)
            return ended + self._engine.take_let_go()
        preempted, rows = scheduled_in(answer)
        self._started.difference_update(preempted)
        requests.admitted(tuple((rid, 0) for rid, _, _ in rows))
        self._found = {rid: start for rid, start, _ in rows if start and rid not in self._started}
        self._started.update(rid for rid, _, _ in rows)
        return []

    def take_found(self) -> dict[int, int]:
        """Of requests whose first step it is since they waited: the tokens that they started with."""
        found, self._found = self._found, {}
        return found

    def _wrap(self, owner, name: str, make: Callable[[Callable], Callable]) -> None:
        setattr(owner, name, make(getattr(owner, name)))

    def _allocating(self, inner: Callable) -> Callable:
        bind = inspect.signature(inspect.unwrap(inner)).bind

        def call(request, *args, **kwargs):
            rid = int(request.request_id)
            asked = bind(request, *args, **kwargs).arguments
            start = request.num_computed_tokens + asked.get("num_new_computed_tokens", 0)
            start += asked.get("num_external_computed_tokens", 0)
            with self._watch.about(rid):
                given = inner(request, *args, **kwargs)
                if given is not None:
                    end = min(start + asked["num_new_tokens"], request.num_tokens)  # a draft fills no page
                    self._promise(rid, start, end)
            return given

        return call

    def _promise(self, rid: int, start: int, end: int) -> None:
        """The pages whose last slot the pass will write, by group; whoever is told them takes them from the table."""
        watch = self._watch
        null = watch.source.shape.null_page
        for group in self._engine.groups:
            first, last = start // group.page_size, end // group.page_size
            if first >= last:
                continue
            table = self._engine.group_table(rid, group.name, first, last)
            pages = [page for page in table if page != null]
            if pages:
                self._of_operation().setdefault(rid, []).append((group.name, pages))
                watch.tell(_PROMISED, watch.source.name, pages, None, "allocate_slots", table=group.name)

    def _letting_go(self, inner: Callable) -> Callable:
        def call(request, *args, **kwargs):
            rid, watch = int(request.request_id), self._watch
            with watch.about(rid):
                watch.take_cause()
                for group, pages in self._of_operation().pop(rid, ()):
                    watch.tell(_WITHDRAWN, watch.source.name, pages, None, "free", table=group)
                let_go = inner(request, *args, **kwargs)
                # It may get the same pages again in this operation, and then has them anew.
                self._requests.tell_tables(((rid, 0),))
                return let_go

        return call

    def _of_operation(self) -> dict[int, list[tuple[str, list[int]]]]:
        """Promises of the operation at hand; those of the one before have been kept."""
        if self._operation != self._watch.operation.operation:
            self._operation = self._watch.operation.operation
            self._promised = {}
        return self._promised
