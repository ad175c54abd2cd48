"""F06: a free in a group reads its peers at the flush and not when it is asked for (sgl-project/sglang#36135, #36646).

A slot that was mapped anew meanwhile, by the recovery of a tombstone, then loses its new peer, which is validly on
loan, and the page that was to go stays lent to nobody.
"""

from __future__ import annotations

import torch

from allocator.faults.log import FaultLog


class ResolvedAtFlush:
    """Overrides a HybridSWAAllocator. Remembers what each run of the pile was read from: FULL pages and their peers."""

    faults: FaultLog

    def _close_group(self) -> None:
        super()._close_group()
        self._sources: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}  # run of swa_page_ids_group

    def free_swa_segment(self, indices: torch.Tensor, *, start_pos: int) -> None:
        run = len(self.swa_page_ids_group)
        slots = self._representatives(indices, start_pos).to(torch.int64)
        read = self._peer_pages(slots)
        super().free_swa_segment(indices, start_pos=start_pos)
        if len(self.swa_page_ids_group) > run:
            self._sources[run] = slots, read

    def _flush_group(self) -> None:
        for run, (slots, read) in self._sources.items():
            now = self._peer_pages(slots)
            rebound = now > 0
            if bool(rebound.any()) and self.faults.acts("F06"):
                self.swa_page_ids_group[run] = self.release.enqueue(torch.where(rebound, now, read))
                self._clear_peers(slots[rebound], slots[rebound] // self.page_size)
        super()._flush_group()

    def _peer_pages(self, slots: torch.Tensor) -> torch.Tensor:
        return self.translate_loc_from_full_to_swa(slots) // self.page_size
