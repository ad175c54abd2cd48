"""When planned requests arrive: at their nominal start, or a while after the request that releases them has ended.

Ties are broken by request id, so the order is the same on every launcher.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Iterable

from stress.serving.request import LiveRequest, PlannedRequest


class Arrivals:
    """All requests of a rank. Raises ValueError where a request waits for one that is not among them."""

    def __init__(self, planned: Iterable[PlannedRequest]) -> None:
        self._due: list[tuple[int, int, PlannedRequest]] = []
        self._released_by: dict[int, list[PlannedRequest]] = defaultdict(list)
        known: set[int] = set()
        for request in planned:
            known.add(request.rid)
            if request.after < 0:
                self._due.append((request.start_us, request.rid, request))
            else:
                self._released_by[request.after].append(request)
        strangers = sorted(set(self._released_by) - known)
        if strangers:
            raise ValueError(f"plan: request {strangers[0]} releases others but is not on their rank")
        heapq.heapify(self._due)
        self.total = len(known)

    def next_us(self) -> int | None:
        return self._due[0][0] if self._due else None

    def take(self, now_us: int) -> list[LiveRequest]:
        """Requests that have arrived by now, in order of (arrival, id)."""
        arrived = []
        while self._due and self._due[0][0] <= now_us:
            arrived.append(LiveRequest(heapq.heappop(self._due)[2]))
        return arrived

    def ended(self, rid: int, now_us: int) -> None:
        """A request has ended, in whatever way: those that waited for it are on their way."""
        for request in self._released_by.pop(rid, ()):
            heapq.heappush(self._due, (now_us + request.wait_us, request.rid, request))
