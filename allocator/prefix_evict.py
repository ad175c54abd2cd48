"""Eviction order: the least recently used node among those that may go.

A heap of (tick, node id, node) with lazy keys. Ticks only grow, so an entry's tick never exceeds its node's,
and the smallest entry whose tick is up to date is the victim. Therefore a touch costs the tree one store and
the queue nothing; a stale entry is put right when it comes to the front.
Must hold: every node that may go is queued, exactly once. Whoever makes a node eligible pushes it; nobody has
to take one out, because `pop` drops entries that are no longer eligible.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable

from allocator.prefix_node import PrefixNode

COMPACT_ENTRIES_MIN = 1024


class EvictionQueue:
    """Victims of one component. `eligible(node)` says whether a node may go now."""

    def __init__(self, eligible: Callable[[PrefixNode], bool]) -> None:
        self._eligible = eligible
        self._heap: list[tuple[int, int, PrefixNode]] = []
        self._queued: set[int] = set()
        self._compact_at = COMPACT_ENTRIES_MIN

    def __len__(self) -> int:
        return len(self._heap)

    def push(self, node: PrefixNode) -> None:
        """Queues a node that has just become eligible; one that is queued already stays where it is."""
        if node.node_id in self._queued:
            return
        if len(self._heap) >= self._compact_at:
            self._compact()
        self._queued.add(node.node_id)
        heapq.heappush(self._heap, (node.last_use, node.node_id, node))

    def pop(self) -> PrefixNode | None:
        """Takes the least recently used eligible node out, or returns None when there is none."""
        heap = self._heap
        while heap:
            tick, node_id, node = heap[0]
            if not self._eligible(node):
                heapq.heappop(heap)
                self._queued.discard(node_id)
            elif tick < node.last_use:
                heapq.heapreplace(heap, (node.last_use, node_id, node))
            else:
                heapq.heappop(heap)
                self._queued.discard(node_id)
                return node
        return None

    def _compact(self) -> None:
        """Drops what is not eligible, so that dead nodes do not pile up when this queue is seldom popped."""
        self._heap = [entry for entry in self._heap if self._eligible(entry[2])]
        heapq.heapify(self._heap)
        self._queued = {node_id for _, node_id, _ in self._heap}
        self._compact_at = max(COMPACT_ENTRIES_MIN, 2 * len(self._heap))

    def problems(self, nodes: list[PrefixNode], label: str) -> list[str]:
        """Breaches of the queue's contract, given all nodes of the tree; one line each."""
        found = []
        entries: dict[int, int] = {}
        for tick, node_id, node in self._heap:
            if node_id in entries:
                found.append(f"{label} queue: {node!r} is queued twice")
            if tick > node.last_use:
                found.append(
                    f"{label} queue: {node!r} is queued at tick {tick}, after its last use {node.last_use}"
                )
            entries[node_id] = tick
        if entries.keys() != self._queued:
            found.append(
                f"{label} queue: {len(entries)} nodes are queued, {len(self._queued)} are marked as queued"
            )
        for node in nodes:
            if self._eligible(node) and node.node_id not in entries:
                found.append(f"{label} queue: {node!r} may be evicted and is not queued")
        return found
