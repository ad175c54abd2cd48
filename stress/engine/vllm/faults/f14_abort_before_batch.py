"""F14: an abort between match and batch leaves the request's blocks (as sgl-project/sglang#12693, #9817).

The scheduler has forgotten the request; the manager still has its tables, with the hit and the slot that it was given.
"""

from __future__ import annotations

from allocator.faults.log import FaultLog


class AbortBeforeBatch:
    """Overrides a VllmEngine. `_joined`: requests that have been part of a batch."""

    faults: FaultLog

    def __init__(self, *args, **kwargs) -> None:
        super().__init__(*args, **kwargs)
        self._joined: set[int] = set()

    def extend(self, rows: list[tuple[int, int]]) -> bool:
        self._joined.update(rid for rid, _ in rows)
        return super().extend(rows)

    def abort(self, rid: int) -> None:
        if rid in self._joined or not self.faults.acts("F14"):
            super().abort(rid)
            return
        self._end_schedule()
        del self._running[rid], self._requests[rid]
