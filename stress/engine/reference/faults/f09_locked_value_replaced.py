"""F09: a tombstone's recovery puts the caller's FULL page in the place of a locked one (sgl-project/sglang#29352).

The tree's own page goes back to the pool while a running request has it in its row: that request goes on to read and
write a page that the pool lends to somebody else.
"""

from __future__ import annotations

import numpy as np

from allocator.faults.log import FaultLog
from allocator.prefix_node import Inserted, PrefixNode


class LockedValueReplaced:
    """Overrides a Memory."""

    faults: FaultLog

    def recover(self, inserted: Inserted, own: np.ndarray, lo: int, hi: int) -> None:
        for node in _nodes_of(inserted.node, lo, hi):
            start, end = max(lo, node.start), min(hi, node.end)
            locked = node.full_lock > 0 and not np.array_equal(node.pages, own[node.start : node.end])
            if locked and self.faults.acts("F09"):
                self.allocator.free_full_segment(self.whole_slots(node.pages), start_pos=0)
                node.pages = own[node.start : node.end].copy()
                inserted.pages[node.start : node.end] = node.pages
            else:
                super().recover(inserted, own, start, end)


def _nodes_of(end: PrefixNode, lo: int, hi: int) -> list[PrefixNode]:
    """The nodes on the path to `end` that have pages of [lo, hi), root side first."""
    found: list[PrefixNode] = []
    node = end
    while node.parent is not None and node.end > lo:
        if node.start < hi:
            found.append(node)
        node = node.parent
    return found[::-1]
