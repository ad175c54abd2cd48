"""F08: the FULL side of a page is freed while its peer is live (sgl-project/sglang#36723).

Nobody can name the SWA page any more: the pool shrinks, silently, eviction by eviction.
"""

from __future__ import annotations

from allocator.faults.log import FaultLog
from allocator.prefix_node import Evicted


class FullSideAlone:
    """Overrides a Memory: an evicted leaf is taken for one whose SWA went before."""

    faults: FaultLog

    def _free_leaf(self, victim: Evicted) -> None:
        if victim.swa_live and self.faults.acts("F08"):
            self.allocator.free_full_segment(self.whole_slots(victim.pages), start_pos=0)
        else:
            super()._free_leaf(victim)
