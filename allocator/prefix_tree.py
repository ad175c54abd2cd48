"""The structure under the prefix cache: nodes, page counters, recency and victims. It knows no lock receipts.

Must hold: a node has pages of one SWA state; every unlocked leaf is in the FULL queue, every SWA-live node in the
list of SWA recency, and nothing else in the list; the counters equal `recount()`.
The tree owns page ids, not memory: eviction says which pages to free, one victim at a time, and the caller
frees them before the next victim is chosen, as upstream applies each step's frees first.
FULL goes by last use, leaves first. SWA goes by its own recency, which only the last window of what was used
renews: a leaf that may go goes whole, an inner node becomes a tombstone (sglang `SWAComponent`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from allocator import prefix_audit
from allocator.prefix_evict import EvictionQueue
from allocator.prefix_node import KEY_BYTES, Evicted, PageCounts, PrefixNode
from allocator.prefix_recency import SWARecency

NO_PAGES = np.empty(0, dtype=np.int64)
NO_PAGES.flags.writeable = False
_WORD = (1 << 62) - 1


class PrefixTree:
    """Nodes below a root that stands for the empty prefix.

    Read only for others: `root`, `full_evictable`, `full_protected`, `swa_evictable` and `swa_protected` in
    pages, `nodes_split` and `pages_recovered` since the start, `fingerprint`: which pages stand where.
    """

    def __init__(self, window_pages: int) -> None:
        self.window_pages = window_pages
        self.root = PrefixNode(0, None, 0, b"", NO_PAGES, False)
        self.full_evictable = self.full_protected = 0
        self.swa_evictable = self.swa_protected = 0
        self.nodes_split = self.pages_recovered = 0
        self.fingerprint = 0
        self._next_node_id = 1
        self._tick = 0
        self.full_queue = EvictionQueue(_is_unlocked_leaf)
        self.swa_recency = SWARecency(self.root)

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

    def known_pages(self, keys: np.ndarray) -> int:
        """How many pages of `keys` (int64[n]) FULL alone would hit; marks nothing as used and splits nothing."""
        return self._walk(keys)[1]

    def _split_end(self, path: list[PrefixNode], end: int) -> None:
        """Makes the path end at page `end`, which lies in its last node."""
        if path and end < path[-1].end:
            path[-1] = self._split(path[-1], end)

    def _split(self, node: PrefixNode, at: int) -> PrefixNode:
        """Splits at page depth `at` and returns the new front half.

        Both halves count as used now; in SWA recency the front half stands right behind the deep one, which
        keeps its place (sglang `_split_node`).
        """
        front = node.split_front(self._take_node_id(), at - node.start)
        self.nodes_split += 1
        self._touch((front, node))
        if front.swa_live:
            self.swa_recency.add_just_older(front, node)
        return front

    def _touch(self, nodes: Iterable[PrefixNode]) -> None:
        """Marks nodes as used, the last one latest: for the order of FULL eviction."""
        tick = self._tick
        for node in nodes:
            tick += 1
            node.last_use = tick
        self._tick = tick

    def _renew_window(self, node: PrefixNode) -> None:
        """Makes what a window and a page before the end of `node` touch the newest SWA parts, `node` the newest.

        What lies further ahead keeps its place, so that it can be evicted (sglang
        `reset_node_and_window_ancestors_mru`).
        """
        above, end = [], node.end
        while node is not self.root and end - node.end <= self.window_pages:
            if node.swa_live:
                above.append(node)
            node = node.parent
        for node in reversed(above):
            self.swa_recency.renew(node)

    def _take_node_id(self) -> int:
        self._next_node_id += 1
        return self._next_node_id - 1

    def _adopt(
        self, parent: PrefixNode, start: int, key_bytes: bytes, pages: np.ndarray, swa_live: bool
    ) -> PrefixNode:
        """Hangs a new unlocked leaf below `parent`."""
        node = PrefixNode(self._take_node_id(), parent, start, key_bytes, pages, swa_live)
        parent.children[node.first_key] = node
        self._touch((node,))
        self.full_evictable += len(pages)
        self.full_queue.push(node)
        self.fingerprint = (self.fingerprint + _print_of(node)) & _WORD
        if swa_live:
            self.swa_evictable += len(pages)
            self.swa_recency.add_newest(node)
        return node

    def _recover(self, node: PrefixNode, caller_pages: np.ndarray) -> None:
        """Marks a tombstone as SWA live. Its FULL pages stay: `caller_pages` only lend their SWA peers."""
        node.swa_live = True
        self.pages_recovered += len(caller_pages)
        if node.swa_lock:
            self.swa_protected += node.end - node.start
        else:
            self.swa_evictable += node.end - node.start
        self.swa_recency.add_newest(node)

    def hide(self, node: PrefixNode, start: int) -> None:
        """Matches no longer find the pages from `start` on of the prefix that ends with `node`, nor what is below.

        They stay in the tree until they are evicted, because others may have them locked.
        """
        while node.start > start:
            node = node.parent
        if node.start < start:
            self._split(node, start)
        del node.parent.children[node.first_key]
        # Page keys are positive.
        node.key_bytes = np.full(node.end - node.start, -node.node_id, dtype=np.int64).tobytes()
        node.parent.children[node.first_key] = node

    def evict_full(self, need_pages: int) -> Iterator[Evicted]:
        """Removes unlocked leaves, least recently used first, until `need_pages` FULL pages or all went.

        Lazy: the next victim is chosen after the caller has freed the last one.
        """
        while need_pages > 0 and (node := self.full_queue.pop()) is not None:
            need_pages -= len(node.pages)
            yield self._remove_leaf(node)

    def evict_swa(self, need_pages: int) -> Iterator[Evicted]:
        """Takes SWA parts, least recently used first; also lazy.

        A leaf without any lock goes whole, FULL too; another node becomes a tombstone (sglang
        `SWAComponent._evict_device_next_node`).
        """
        while need_pages > 0 and (node := self.swa_recency.oldest_unlocked()) is not None:
            need_pages -= len(node.pages)
            yield self._remove_leaf(node) if _is_unlocked_leaf(node) else self._tombstone(node)

    def _remove_leaf(self, node: PrefixNode) -> Evicted:
        parent, pages, swa_live = node.parent, len(node.pages), node.swa_live
        del parent.children[node.first_key]
        node.parent = None
        self.full_evictable -= pages
        self.fingerprint = (self.fingerprint - _print_of(node)) & _WORD
        if swa_live:
            self.swa_evictable -= pages
            self.swa_recency.remove(node)
        if parent is not self.root and not parent.children and not parent.full_lock:
            self.full_queue.push(parent)
        return Evicted(node.pages, swa_live, "full")

    def _tombstone(self, node: PrefixNode) -> Evicted:
        node.swa_live = False
        self.swa_recency.remove(node)
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


def _print_of(node: PrefixNode) -> int:
    """A number of the node's pages and their places in the prefix; a split does not change the sum over all nodes."""
    return int(node.pages @ (node.pages + np.arange(node.start, node.end)))


def _is_unlocked_leaf(node: PrefixNode) -> bool:
    # A removed node has no parent; an entry that it left in a queue must not bring it back.
    return not node.children and not node.full_lock and node.parent is not None
