"""F03: with a per-request ring, a free returns before it clears the map (regression test of sgl-project/sglang#38571).

The entry outlives its window: the next request with that FULL page writes its window into another one's row.
"""

from __future__ import annotations

import torch

from allocator.faults.log import FaultLog


class RingEntriesKept:
    """Overrides a HybridSWAAllocator: entries that name the ring stay."""

    faults: FaultLog

    def _clear_peers(self, indices: torch.Tensor, full_pages: torch.Tensor) -> None:
        named = self.ring and bool((self._mapping_by_page.index_select(0, full_pages) > 0).any())
        if not (named and self.faults.acts("F03")):
            super()._clear_peers(indices, full_pages)
