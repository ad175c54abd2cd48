"""F02: with a per-request ring, frees credit the paged SWA pool with the ring's pages (sgl-project/sglang#38571).

The map names slots of the ring, which the SWA pool never lent: its free list grows beyond the pool.
"""

from __future__ import annotations

import torch

from allocator.faults.log import FaultLog


class RingPagesCredited:
    """Overrides a HybridSWAAllocator: what the map names is released, whoever lent it."""

    faults: FaultLog

    def _lent_peers(self) -> bool:
        return True

    def _credit_swa(self, runs: list[torch.Tensor]) -> None:
        named = any(bool((run > 0).any()) for run in runs)
        if not self.ring or (named and self.faults.acts("F02")):
            super()._credit_swa(runs)
