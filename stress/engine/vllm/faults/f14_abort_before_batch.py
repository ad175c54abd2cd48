"""F14: an abort between match and batch leaves the request's blocks (as sgl-project/sglang#12693, #9817).

The scheduler has forgotten the request; the manager still has its tables, with the hit and the slot that it was given.
"""

from __future__ import annotations

from allocator.faults.log import FaultLog
from stress.engine.joined import Joined


class AbortBeforeBatch(Joined):
    """Overrides a VllmEngine."""

    faults: FaultLog

    def abort(self, rid: int) -> None:
        if rid in self._joined or not self.faults.acts("F14"):
            super().abort(rid)
            return
        self._end_schedule()
        del self._running[rid], self._requests[rid]
