"""How requests come in: matched, given slots, and loaded if the host's memory has more of their prefix.

A request with something to load is first refused, holding its slots until the load has ended; what has come is then
published, and it is admitted when it is asked for again. Where nothing runs that could make room, what waits with its
load gives that back: upstream's scheduler asks all that wait, and the loop here only the first.
"""

from __future__ import annotations

from typing import Any

from stress.engine.contract import Admission, RequestSpec
from stress.engine.vllm.calls import Calls
from stress.engine.vllm.offload import Offload


class Running:
    """A request that has blocks: the tree's `request`, what it was admitted for, and what it found."""

    __slots__ = ("cached", "loaded", "request", "spec")

    def __init__(self, spec: RequestSpec, request: Any, cached: int, loaded: int) -> None:
        self.spec, self.request, self.cached, self.loaded = spec, request, cached, loaded


class Admissions:
    """`_loading`: have their slots and wait for a load; `_landed`: of these, those whose load has ended; `_requests`:
    the tree's own, from the first match to the end, also while they wait again; `_closed`: those that the loop has
    closed since the last verb; `changed`: see `stress.engine.groups`."""

    calls: Calls
    offload: Offload | None
    max_rows: int
    now_us: int
    changed: list[int]
    _specs: dict[int, RequestSpec]
    _running: dict[int, Running]
    _loading: dict[int, Running]
    _landed: set[int]
    _requests: dict[int, Any]
    _closed: list[int]

    def admit(self, rid: int, spare: int) -> Admission | None:
        self._end_schedule()
        if len(self._running) >= self.max_rows:
            return None
        admitted = self._loading.get(rid)
        if admitted is None:
            admitted = self._match(rid)
        elif not self._take_load(admitted):
            return None
        if admitted is None:
            return None
        self._running[rid] = admitted
        return Admission(admitted.cached, admitted.loaded, self.now_us)

    def _match(self, rid: int) -> Running | None:
        """With its hit and the slot of a token. None: there is no room, or a load of it has begun."""
        calls, spec, offload = self.calls, self._specs[rid], self.offload
        request = self._requests.get(rid)
        if request is None:
            request = self._requests[rid] = calls.request(spec)
        match = calls.match(request)
        external = 0 if offload is None else offload.restorable(request, match.tokens)
        while not calls.allocate_first(request, 0 if external else 1, match, external):
            if self._running or not self._give_back_loaded():
                return None
        admitted = Running(spec, request, match.tokens, external)
        request.num_computed_tokens = match.tokens
        if offload is not None:
            offload.allocated(request, external)
        if not external:
            return admitted
        self._loading[rid] = admitted
        offload.scheduled({}, self.now_us)
        return None

    def _take_load(self, admitted: Running) -> bool:
        """Whether its load has ended, and there is the slot of a token: what has come is published then."""
        rid = admitted.spec.rid
        if rid not in self._landed:
            return False
        short = self.pages_short(rid, admitted.cached + admitted.loaded + 1)
        while short > self.calls.pool.get_num_free_blocks():
            if self._running or not self._give_back_loaded() or rid not in self._loading:
                return False
        request = admitted.request
        request.num_computed_tokens = admitted.cached + admitted.loaded
        self.calls.publish(request, request.num_computed_tokens)
        self._landed.remove(rid)
        del self._loading[rid]
        return self.calls.allocate(request, 1)

    def _give_back_loaded(self) -> bool:
        """Whether a request that waits with what was loaded for it has given that back: nothing runs that could end
        and make room. The one that came last, which may be the one that asks."""
        waiting = [rid for rid in self._loading if rid in self._landed]
        if not waiting:
            return False
        rid = waiting[-1]
        self._landed.remove(rid)
        request = self._loading.pop(rid).request
        self.offload.preempted(request)
        self.calls.preempt(request)
        self.changed.append(rid)
        return True

    def _end_request(self, request: Any) -> None:
        """The request ends for good. What the connector has still to store of it begins to be stored."""
        del self._requests[int(request.request_id)]
        if self.offload is None:
            self.calls.free(request)
            return
        self.offload.finished(request)
        self.calls.free(request)
        self.offload.scheduled({}, self.now_us)

    def _end_closed(self) -> None:
        """Requests that were closed and not opened again have left while they waited."""
        closed, self._closed = self._closed, []
        for rid in closed:
            if rid in self._specs or rid not in self._requests:
                continue
            self._landed.discard(rid)
            if self._loading.pop(rid, None) is not None:
                self.changed.append(rid)
            self._end_request(self._requests[rid])
