"""F06: a free in a group reads its peers at the flush and not when it is asked for (sgl-project/sglang#36135, #36646).

A slot that was mapped anew meanwhile, by the recovery of a tombstone, then loses its new peer, which is validly on
loan, and the page that was to go stays lent to nobody.
"""

from __future__ import annotations

import torch

from allocator.faults.log import FaultLog


class ResolvedAtFlush:
    """Overrides a HybridSWAAllocator. Remembers which FULL pages each run of the pile was read from."""

    faults: FaultLog

    def _close_group(self) -> None:
        super()._close_group()
        self._sources: dict[int, torch.Tensor] = {}  # run of swa_page_ids_group -> its FULL pages

    def free_swa_segment(self, indices: torch.Tensor, *, start_pos: int) -> None:
        run = len(self.swa_page_ids_group)
        super().free_swa_segment(indices, start_pos=start_pos)
        if len(self.swa_page_ids_group) > run:
            pages = self._representatives(indices, start_pos).to(torch.int64) // self.page_size
            self._sources[run] = pages

    def _flush_group(self) -> None:
        for run, pages in self._sources.items():
            peers = self.translate_loc_from_full_to_swa(pages * self.page_size) // self.page_size
            rebound = peers > 0
            if bool(rebound.any()) and self.faults.acts("F06"):
                kept = len(self.swa_page_ids_group[run]) - int(rebound.sum())
                self.swa_page_ids_group[run] = torch.cat(
                    (self.swa_page_ids_group[run][:kept], peers[rebound])
                )
                self._clear_peers(pages, pages[rebound])
        super()._flush_group()
