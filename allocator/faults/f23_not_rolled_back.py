"""F23: an allocation that fails in the second pool does not give back what it took from the first.

ovg-project/kvcached#364. Nobody has the FULL pages then, and each retry takes more of them.
"""

from __future__ import annotations

import torch

from allocator.extend_layout import count_new_pages
from allocator.faults.log import FaultLog


class NotRolledBack:
    """Overrides a HybridSWAAllocator: it lends FULL before it looks whether SWA has room."""

    faults: FaultLog

    def alloc_extend(
        self,
        prefix_lens: torch.Tensor,
        prefix_lens_cpu: torch.Tensor,
        seq_lens: torch.Tensor,
        seq_lens_cpu: torch.Tensor,
        *rest,
    ) -> torch.Tensor | None:
        asked = (prefix_lens, prefix_lens_cpu, seq_lens, seq_lens_cpu, *rest)
        need = count_new_pages(prefix_lens_cpu, seq_lens_cpu, self.page_size) * self.page_size
        second_is_short = self.swa_available_size() < need <= self.full_available_size()
        if second_is_short and not self.ring and self.faults.acts("F23"):
            self.full_attn_allocator.alloc_extend(*asked)
            return None
        return super().alloc_extend(*asked)
