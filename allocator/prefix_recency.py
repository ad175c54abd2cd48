"""Recency of the nodes that have an SWA part: a doubly linked list through the nodes themselves.

Upstream keeps the window's recency apart from that of FULL, and as a list, because a split puts the front half
right behind the deep half: a place between two uses, which no growing tick can name (sglang `UnifiedLRUList`).
Every operation is O(1); nothing is compared. A node is in the list exactly while it is SWA live.
"""

from __future__ import annotations

from allocator.prefix_node import PrefixNode


class SWARecency:
    """`sentinel` closes the ring: `sentinel.newer` is the oldest node, `sentinel.older` the newest."""

    def __init__(self, sentinel: PrefixNode) -> None:
        self.sentinel = sentinel
        sentinel.newer = sentinel.older = sentinel

    def add_newest(self, node: PrefixNode) -> None:
        self._link(node, self.sentinel.older)

    def add_just_older(self, node: PrefixNode, than: PrefixNode) -> None:
        self._link(node, than.older)

    def renew(self, node: PrefixNode) -> None:
        """Makes a node of the list the newest one."""
        self.remove(node)
        self._link(node, self.sentinel.older)

    def remove(self, node: PrefixNode) -> None:
        older, newer = node.older, node.newer
        older.newer, newer.older = newer, older
        node.older = node.newer = None

    def oldest_unlocked(self) -> PrefixNode | None:
        """The least recently used node without an SWA lock. O(locked nodes that are older)."""
        node = self.sentinel.newer
        while node.swa_lock:
            node = node.newer
        return None if node is self.sentinel else node

    def _link(self, node: PrefixNode, older: PrefixNode) -> None:
        newer = older.newer
        node.older, node.newer = older, newer
        older.newer = newer.older = node

    def problems(self, nodes: list[PrefixNode]) -> list[str]:
        """Breaches of the list's contract, given all nodes of the tree; one line each."""
        found, listed = [], set()
        previous, node = self.sentinel, self.sentinel.newer
        while node is not self.sentinel and node is not None and node.node_id not in listed:
            if node.older is not previous:
                found.append(f"SWA recency: {node!r} does not point back at the one before it")
            if not node.swa_live or node.parent is None:
                found.append(f"SWA recency: {node!r} is listed and has no SWA part in the tree")
            listed.add(node.node_id)
            previous, node = node, node.newer
        if node is not self.sentinel:
            found.append("SWA recency: the list does not close")
        for node in nodes:
            if node.swa_live and node.node_id not in listed:
                found.append(f"SWA recency: {node!r} is SWA live and not listed")
        return found
