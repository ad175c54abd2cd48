"""F05: an allocation of FULL pages without peers keeps the entries of their former life (sgl-project/sglang#25805).

Upstream's allocation for a prompt of which only the tail gets SWA wrote the entries of the tail and left the others as
they were; with an empty tail it returned before it wrote any (#26078). What it left were entries that a free had not
cleared (#27779, which is F04). So that each fault is seen where it lies, frees clear here, and the override keeps the
mapping beside it as it would be if they did not: that is what recycled pages get back.
"""

from __future__ import annotations

import torch

from allocator.faults.log import FaultLog


class OldEntriesKept:
    """Overrides a HybridSWAAllocator. The road is a load that skips SWA: it asks the FULL pool alone."""

    faults: FaultLog

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self._never_cleared = torch.zeros_like(self.full_to_swa_index_mapping)
        self._lend_full = self.full_attn_allocator.alloc
        self.full_attn_allocator.alloc = self._alloc_full

    def _alloc_full(self, need_size: int) -> torch.Tensor | None:
        slots = self._lend_full(need_size)
        if slots is not None:
            old = self._never_cleared[slots]
            if bool((old > 0).any()) and self.faults.acts("F05"):
                self.full_to_swa_index_mapping.scatter_(0, slots, old)
        return slots

    def set_full_to_swa_mapping(self, full_indices: torch.Tensor, swa_indices: torch.Tensor) -> None:
        super().set_full_to_swa_mapping(full_indices, swa_indices)
        self._never_cleared.scatter_(0, full_indices.to(torch.int64), swa_indices.to(torch.int64))

    def clear_full_to_swa_mapping(self, full_indices: torch.Tensor) -> None:
        super().clear_full_to_swa_mapping(full_indices)
        self._never_cleared.index_fill_(0, full_indices.to(torch.int64), 0)
