"""The workers of vLLM's connector, played: they make the copies that a schedule asks for, and tell when these end.

A step's metadata names one load and one store at most. Each worker copies its part in `delay_us` of virtual time; a
store is ordered after its step's forward pass, unless `stores_wait` is false (vllm#45704). What a worker tells goes
with the answer of the model runner. What of that goes wrong is drawn (stress.engine.vllm.injections). A copy is under
way from the schedule that asks for it, or from the request's end at which its pages were held for it, until its last
worker has told its end, once: what is told again is for the scheduler alone to hear. `on_begin`, `on_copy` and `on_end`
say what copies do.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from stress.engine.vllm.copy_events import Failed, Moving, Word, without
from stress.engine.vllm.features import accepted
from stress.engine.vllm.injections import Injections
from stress.engine.vllm.offload import Copy
from stress.engine.vllm.tree_import import VllmTree

NO_EVENT = -1


class Workers:
    """`workers` of them. `pages_of(request)`: the pages of a request's tables. `by_page`: a failed load is told by its
    pages; and `by_request`: by its request. With both, either is drawn."""

    def __init__(
        self,
        tree: VllmTree,
        injections: Injections,
        pages_of: Callable[[str], set[int]],
        *,
        delay_us: int,
        stores_wait: bool,
        workers: int,
        by_page: bool,
        by_request: bool,
    ) -> None:
        self._tree, self._injections, self._pages_of = tree, injections, pages_of
        self._delay_us, self._stores_wait, self._workers = delay_us, stores_wait, workers
        self._by_page, self._by_request = by_page, by_request
        self._held: list[Copy] = []  # no schedule has asked for them yet
        self._moving: dict[int, Moving] = {}
        self._words: list[Word] = []
        self._behind_pass: list[Moving] = []
        self._never_told: dict[int, int] = {}  # ticket -> when its end was due
        self._loads_of: Counter[str] = Counter()
        self._tickets = 0
        self.failures_told = 0
        self.ended: Counter[str] = Counter()  # loads and offloads, and loads of a request that failed
        self.on_begin: Callable[[Copy], None] = lambda copy: None  # its pages are held
        self.on_copy: Callable[[Copy], None] = lambda copy: None  # its source is read
        self.on_end: Callable[[Copy], None] = lambda copy: None

    # A step

    def hold(self, pages: list[int]) -> None:
        """A request's end has taken these for a store, which the next schedule will ask for."""
        copy = self._copy("offload", pages, [], NO_EVENT)
        self._held.append(copy)
        self.on_begin(copy)

    def begin(self, meta: Any, now_us: int) -> tuple[str, ...]:
        """A schedule is complete: its copies begin. Returns the requests that wait for a load from now on."""
        if meta.store_event != NO_EVENT:
            self._begin_store(
                list(meta.store_gpu_blocks), list(meta.store_cpu_blocks), meta.store_event, now_us
            )
        if meta.load_event == NO_EVENT:
            return ()
        requests = tuple(meta.load_event_to_reqs[meta.load_event])
        pages = list(meta.load_gpu_blocks), list(meta.load_cpu_blocks)
        copy = self._copy("load", *pages, meta.load_event, requests)
        self.on_begin(copy)
        moving = self._moving[copy.ticket] = Moving([copy], self._failures(copy), self._workers)
        self._start(moving, now_us + self._delay_us)
        return requests

    def _begin_store(self, pages: list[int], host: list[int], event: int, now_us: int) -> None:
        """What was held for it comes last, in its order; the rest has been found in this schedule."""
        copies = []
        for copy in reversed(self._held):
            first = len(pages) - len(copy.pages)
            if pages[first:] != copy.pages:
                raise RuntimeError(
                    f"store {event} does not end with pages {copy.pages}, which were held for it"
                )
            copies.append(copy._replace(event=event, host_pages=host[first:]))
            del pages[first:], host[first:]
        self._held = []
        if pages:
            found = self._copy("offload", pages, host, event)
            self.on_begin(found)
            copies.append(found)
        moving = Moving(copies[::-1], [], self._workers)
        self._moving[moving.number] = moving
        if self._stores_wait:
            self._behind_pass.append(moving)
        else:
            self._start(moving, now_us + self._delay_us)

    def _copy(
        self, kind: str, pages: list[int], host: list[int], event: int, requests: tuple[str, ...] = ()
    ) -> Copy:
        self._tickets += 1
        return Copy(self._tickets, kind, pages, host, event, requests, due_us=0)  # each worker has its own

    def _start(self, moving: Moving, due_us: int) -> None:
        drawn = self._injections
        for copy in moving.copies:
            self.on_copy(copy)
        for worker in range(self._workers):
            asked = moving.kind, moving.event, worker
            own_us = due_us + drawn.late_us(*asked)
            if drawn.is_lost(*asked):
                self._never_told[moving.number] = own_us
                continue
            self._words.append(Word(own_us, moving.number, worker, False, moving))
            again_us = drawn.again_us(*asked)
            if again_us:
                self._words.append(Word(own_us + again_us, moving.number, worker, True, moving))

    def _failures(self, copy: Copy) -> list[Failed]:
        failed = []
        for request in copy.requests:
            own, loads = self._pages_of(request), self._loads_of[request]
            self._loads_of[request] += 1
            pages = [page for page in copy.pages if page in own]
            first = self._injections.failed_from(int(request), loads, len(pages)) if pages else None
            if first is None:
                continue
            whole = self._by_request
            if whole and self._by_page:
                whole = self._injections.told_by_request(int(request), loads)
            failed.append(Failed(request, frozenset(pages if whole else pages[first:]), whole))
        return failed[:1]  # see _due

    def answers(self, now_us: int) -> list[Any]:
        """The step is over: what each worker tells, a KVConnectorOutput."""
        behind, self._behind_pass = self._behind_pass, []
        for moving in behind:
            self._start(moving, now_us + self._delay_us)
        said = self._due(now_us)
        for word in said:
            if not word.again:
                self._end(word)
        return [self._said_by(worker, said) for worker in range(self._workers)]

    def _due(self, now_us: int) -> list[Word]:
        """What is told now. Nobody tells one end twice in one answer, and one request's load fails in it at most, for a
        scheduler ends those that fail in the order of a set; what remains goes with a later answer, a second time not
        before the first."""
        said: dict[tuple[int, int], Word] = {}
        left, held, fails = [], set(), -1
        for word in sorted(self._words):
            end = word.number, word.worker
            failed = bool(word.of.failed) and not word.again
            waits = word.due_us > now_us or end in said or end in held
            if waits or (failed and fails not in (-1, word.number)):
                left.append(word)
                held.add(end)
                continue
            said[end] = word
            if failed:
                fails = word.number
        self._words = left
        return list(said.values())

    def _end(self, word: Word) -> None:
        moving = word.of
        moving.waits_for.discard(word.worker)
        if moving.waits_for:
            return
        del self._moving[moving.number]
        gone = frozenset().union(*(one.pages for one in moving.failed))
        self.ended[moving.kind] += 1
        self.ended["failed"] += len(moving.failed)
        for copy in moving.copies:
            self.on_end(without(copy, gone) if gone else copy)

    def _said_by(self, worker: int, said: list[Word]) -> Any:
        mine = [word for word in said if word.worker == worker]
        events = [word.of for word in mine]
        stored = {event.event: 1 for event in events if event.kind == "offload"}
        # Whichever worker sees it tells of a failure; here it is the first one.
        failed = [one for word in mine if not (word.again or worker) for one in word.of.failed]
        self.failures_told += len(failed)
        metadata, kind = self._tree.simple_offload_metadata, self._tree.outputs.KVConnectorOutput
        told = {
            # In their order, where upstream has a set.
            "finished_recving": tuple(dict.fromkeys(name for event in events for name in event.requests)),
            "kv_connector_worker_meta": metadata.SimpleCPUOffloadWorkerMetadata(stored) if stored else None,
            "invalid_block_ids": {page for one in failed if not one.by_request for page in one.pages},
            "failed_recving": {one.request for one in failed if one.by_request},
        }
        return kind(**accepted(kind, **told))

    # What may be asked

    @property
    def waits_for_pass(self) -> bool:
        """Whether a store is behind a forward pass that is not done."""
        return bool(self._behind_pass)

    def pending_us(self) -> int | None:
        """When the next end is told; None: no more is told of what has begun."""
        return min((word.due_us for word in self._words), default=None)

    def never_told_us(self) -> int | None:
        """When the first of those ends was due that are never told."""
        return min(self._never_told.values(), default=None)

    def is_loading(self, request: str) -> bool:
        return any(request in moving.requests for moving in self._moving.values())

    def are_stored(self, pages: set[int]) -> bool:
        """Whether a store of any of the pages is under way."""
        stores = [moving.copies for moving in self._moving.values() if moving.kind == "offload"]
        return any(not pages.isdisjoint(copy.pages) for copies in (self._held, *stores) for copy in copies)

    def in_flight(self) -> tuple[int, int]:
        """(loads, offloads) that have not ended."""
        loads = sum(moving.kind == "load" for moving in self._moving.values())
        return loads, len(self._moving) - loads + len(self._held)
