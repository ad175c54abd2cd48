"""F01: a segment free does not drop the representatives without a peer (sgl-project/sglang#38519).

Each of them reads 0 and puts page 0, the padding, on the SWA free list.
"""

from __future__ import annotations

import torch

from allocator.contract import ReleaseStrategy
from allocator.faults.log import FaultLog


class UnmappedReleased:
    """Overrides a HybridSWAAllocator: whatever its release strategy drops is kept."""

    faults: FaultLog

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.release = _Unfiltered(self.release, self.faults)


class _Unfiltered:
    """A release strategy with the fault."""

    def __init__(self, correct: ReleaseStrategy, faults: FaultLog) -> None:
        self.name = correct.name
        self._correct = correct
        self._faults = faults

    def enqueue(self, pages: torch.Tensor) -> torch.Tensor:
        if bool((pages == 0).any()) and self._faults.acts("F01"):
            return pages
        return self._correct.enqueue(pages)

    def flush(self, runs: list[torch.Tensor]) -> torch.Tensor:
        return torch.cat(runs) if "F01" in self._faults.acting else self._correct.flush(runs)
