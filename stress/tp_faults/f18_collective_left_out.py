"""F18: a rank leaves a collective out when its own queue is empty (sgl-project/sglang#27489).

A backup that failed on one rank is not in its queue, and what the other members still wait for is. Correct code asks
what all members know; the fault asks what this rank has.
"""

from __future__ import annotations

from allocator.faults.log import FaultLog


class CollectiveLeftOut:
    """Overrides a TPGroup."""

    faults: FaultLog

    def takes_part(self) -> bool:
        takes_part = super().takes_part()
        if takes_part and not self.agreed.has_something_to_tell() and self.faults.acts("F18"):
            return False
        return takes_part
