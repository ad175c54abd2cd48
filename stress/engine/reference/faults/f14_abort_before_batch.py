"""F14: an abort between match and batch leaves the request's slot and lock (sgl-project/sglang#12693, #9817).

The row, what was loaded for it and the lock on its prefix stay; the scheduler has forgotten the request.
"""

from __future__ import annotations

from allocator.faults.log import FaultLog
from stress.engine.joined import Joined


class AbortBeforeBatch(Joined):
    """Overrides a ReferenceEngine."""

    faults: FaultLog

    def abort(self, rid: int) -> None:
        if rid in self._joined or not self.faults.acts("F14"):
            super().abort(rid)
