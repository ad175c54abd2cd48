"""F12: the insert of an unfinished request forgets what has slid out of its window (sgl-project/sglang#30845, #36909).

A long prompt is prefilled in chunks; what left the window is given back, and the checkpoint after the chunk publishes
it as live all the same. The next request that matches the prefix reads window slots that are others' by then.
"""

from __future__ import annotations

import numpy as np

from allocator.faults.log import FaultLog
from stress.engine.reference.row import Row


class BoundaryForgotten:
    """Overrides a Memory."""

    faults: FaultLog

    def pages_with_peer(self, row: Row, whole: int, *, finished: bool) -> np.ndarray:
        has_peer = super().pages_with_peer(row, whole, finished=finished)
        first = max(row.swa_from, row.protected) // self.page_size
        evicted = self.paged_swa and min(row.cursor // self.page_size, whole) > first
        if not finished and evicted and self.faults.acts("F12"):
            has_peer[first:] = True
        return has_peer
