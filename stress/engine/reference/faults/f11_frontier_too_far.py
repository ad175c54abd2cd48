"""F11: where a page is wider than the window, the window's frontier stands one page too far (sgl-project/sglang#22470,
#29860: the margin of a page is dropped).

The frontier then reaches what an insert publishes. The insert can't tell a new range that is dead as a whole from one
that is live as a whole, as upstream's could not, and publishes it as live. Where the end lies early in its page, the
next forward pass also reads positions that have lost their SWA part.
"""

from __future__ import annotations

import numpy as np

from allocator.faults.log import FaultLog
from stress.engine.reference.row import Row


class FrontierTooFar:
    """Overrides a Memory. The trigger: one page more and the frontier lies inside the window."""

    faults: FaultLog

    def window_frontier(self, row: Row, end: int) -> int:
        frontier = super().window_frontier(row, end)
        further = frontier + self.page_size
        inside = further > row.committed - self.window_tokens
        free = max(row.cursor, row.protected) < further <= row.committed
        if self.page_size > self.window_tokens and inside and free and self.faults.acts("F11"):
            return further
        return frontier

    def pages_with_peer(self, row: Row, whole: int, *, finished: bool) -> np.ndarray:
        has_peer = super().pages_with_peer(row, whole, finished=finished)
        if "F11" in self.faults.acting and row.cursor >= whole * self.page_size > row.protected:
            has_peer[row.protected // self.page_size :] = True
        return has_peer
