"""F07: an abort inside result processing opens a free group of its own (sgl-project/sglang#36646).

What the outer group has piled by then is lost: see the allocator's fault of the same name.
"""

from __future__ import annotations

from allocator.faults.log import FaultLog


class GroupInGroup:
    """Overrides a ReferenceEngine."""

    faults: FaultLog

    def abort(self, rid: int) -> None:
        allocator = self.memory.allocator
        if not (allocator.frees_wait() and self.faults.acts("F07")):
            super().abort(rid)
            return
        allocator.free_group_begin()
        super().abort(rid)
        allocator.free_group_end()
