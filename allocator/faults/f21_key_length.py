"""F21: a counter grows by the length of values and shrinks by the length of keys (sgl-project/sglang#10637).

The two differ where a key was cut after its length had been taken: here by the split of a node.
"""

from __future__ import annotations

from allocator.faults.log import FaultLog
from allocator.prefix_node import Evicted, PrefixNode


class KeyLengthTaken:
    """Overrides a PrefixCache: a leaf that goes counts as many pages as its key had before it was split."""

    faults: FaultLog

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self._key_pages: dict[int, int] = {}

    def _split(self, node: PrefixNode, at: int) -> PrefixNode:
        key_pages = self._key_pages.get(node.node_id, node.end - node.start)
        front = super()._split(node, at)
        self._key_pages[node.node_id] = key_pages
        return front

    def _remove_leaf(self, node: PrefixNode) -> Evicted:
        evicted = super()._remove_leaf(node)
        surplus = self._key_pages.pop(node.node_id, 0) - len(node.pages)
        if surplus > 0 and self.faults.acts("F21"):
            self.full_evictable -= surplus
        return evicted
