"""The structure under the prefix cache: nodes, page counters, recency and victims. It knows no lock receipts.

Must hold: a node has pages of one SWA state; a parent is used later than its child; every unlocked leaf is in
the FULL queue and every SWA-live node without an SWA lock in the SWA queue; the counters equal `recount()`.
The tree owns page ids, not memory: eviction says which pages to free, one victim at a time, and the caller
frees them before the next victim is chosen, as upstream applies each step's frees first.
Differs from upstream on purpose: a leaf whose SWA part is evicted keeps its FULL part.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from allocator import prefix_audit
from allocator.prefix_evict import EvictionQueue
from allocator.prefix_node import KEY_BYTES, Evicted, PageCounts, PrefixNode

NO_PAGES = np.empty(0, dtype=np.int64)
NO_PAGES.flags.writeable = False


class PrefixTree:
    """Nodes below a root that stands for the empty prefix.

    Read only for others: `root`, `full_evictable`, `full_protected`, `swa_evictable` and `swa_protected` in
    pages, `nodes_split` and `pages_recovered` since the start.
    """

    def __init__(self) -> None:
        self.root = PrefixNode(0, None, 0, b"", NO_PAGES, False)
        self.full_evictable = self.full_protected = 0
        self.swa_evictable = self.swa_protected = 0
        self.nodes_split = self.pages_recovered = 0
        self._next_node_id = 1
        self._tick = 0
        self.full_queue = EvictionQueue(_is_unlocked_leaf)
        self.swa_queue = EvictionQueue(_is_unlocked_swa)

    def _walk(self, keys: np.ndarray) -> tuple[list[PrefixNode], int]:
        """The nodes that `keys` hits, root side first, and the hit's page depth, maybe inside the last."""
        key_bytes, pages = keys.tobytes(), len(keys)
        path: list[PrefixNode] = []
        node, depth = self.root, 0
        while depth < pages:
            node = node.children.get(keys.item(depth))
            if node is None:
                break
            path.append(node)
            theirs = key_bytes[depth * KEY_BYTES : node.end * KEY_BYTES]
            if theirs != node.key_bytes:
                return path, depth + node.shared_pages(theirs)
            depth = node.end
        return path, depth

    def _split_end(self, path: list[PrefixNode], end: int) -> None:
        """Makes the path end at page `end`, which lies in its last node."""
        if path and end < path[-1].end:
            path[-1] = self._split(path[-1], end)

    def _split(self, node: PrefixNode, at: int) -> PrefixNode:
        """Splits at page depth `at` and returns the new front half. The caller touches the front half."""
        front = node.split_front(self._take_node_id(), at - node.start)
        self.nodes_split += 1
        if front.swa_live and not front.swa_lock:
            self.swa_queue.push(front)
        return front

    def _touch(self, path: list[PrefixNode]) -> None:
        """Marks a path that starts at the root as used, leaf first, so that a parent is above its child."""
        tick = self._tick
        for node in reversed(path):
            tick += 1
            node.last_use = tick
        self._tick = tick

    def _take_node_id(self) -> int:
        self._next_node_id += 1
        return self._next_node_id - 1

    def _adopt(
        self, parent: PrefixNode, start: int, key_bytes: bytes, pages: np.ndarray, swa_live: bool
    ) -> PrefixNode:
        """Hangs a new unlocked leaf below `parent`."""
        node = PrefixNode(self._take_node_id(), parent, start, key_bytes, pages, swa_live)
        parent.children[node.first_key] = node
        self.full_evictable += len(pages)
        self.full_queue.push(node)
        if swa_live:
            self.swa_evictable += len(pages)
            self.swa_queue.push(node)
        return node

    def _recover(self, node: PrefixNode, caller_pages: np.ndarray) -> None:
        """Marks a tombstone as SWA live. Its FULL pages stay: `caller_pages` only lend their SWA peers."""
        node.swa_live = True
        self.pages_recovered += len(caller_pages)
        self.swa_evictable += node.end - node.start
        self.swa_queue.push(node)

    def evict_full(self, need_pages: int) -> Iterator[Evicted]:
        """Removes unlocked leaves, least recently used first, until `need_pages` FULL pages or all went.

        Lazy: the next victim is chosen after the caller has freed the last one.
        """
        while need_pages > 0 and (node := self.full_queue.pop()) is not None:
            need_pages -= len(node.pages)
            yield self._remove_leaf(node)

    def evict_swa(self, need_pages: int) -> Iterator[Evicted]:
        """Turns SWA-live nodes, inner ones too, into tombstones, least recently used first; also lazy."""
        while need_pages > 0 and (node := self.swa_queue.pop()) is not None:
            need_pages -= len(node.pages)
            yield self._tombstone(node)

    def _remove_leaf(self, node: PrefixNode) -> Evicted:
        parent, pages, swa_live = node.parent, len(node.pages), node.swa_live
        del parent.children[node.first_key]
        node.parent = None
        self.full_evictable -= pages
        if swa_live:
            self.swa_evictable -= pages
        if parent is not self.root and not parent.children and not parent.full_lock:
            self.full_queue.push(parent)
        return Evicted(node.pages, swa_live, "full")

    def _tombstone(self, node: PrefixNode) -> Evicted:
        node.swa_live = False
        self.swa_evictable -= len(node.pages)
        return Evicted(node.pages, True, "swa")

    def counts(self) -> PageCounts:
        """The four counters, in pages. O(1)."""
        return PageCounts(self.full_evictable, self.full_protected, self.swa_evictable, self.swa_protected)

    def recount(self) -> PageCounts:
        """The four counters, computed from the nodes. O(nodes)."""
        return prefix_audit.recount(self.root)

    def cached_pages(self) -> np.ndarray:
        """All FULL pages of the tree, int64[], in tree order."""
        return prefix_audit.page_ids(self.root)

    def swa_live_pages(self) -> np.ndarray:
        """The FULL pages of the tree that have SWA slots, int64[], in tree order."""
        return prefix_audit.page_ids(self.root, swa_live_only=True)


def _is_unlocked_leaf(node: PrefixNode) -> bool:
    # A removed node has no parent; an entry that it left in a queue must not bring it back.
    return not node.children and not node.full_lock and node.parent is not None


def _is_unlocked_swa(node: PrefixNode) -> bool:
    return node.swa_live and not node.swa_lock and node.parent is not None
