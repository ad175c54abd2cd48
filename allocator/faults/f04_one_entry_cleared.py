"""F04: a page free clears the entry of one token and releases the whole page (sgl-project/sglang#27779, #27789).

A segment free names a page by one slot. The entries of its other tokens outlive the page: whoever reads one of them
later gives back a page that is somebody else's by then.
"""

from __future__ import annotations

import torch

from allocator.faults.log import FaultLog


class OneEntryCleared:
    """Overrides a HybridSWAAllocator: of each page only the first slot that was named loses its peer."""

    faults: FaultLog

    def _clear_peers(self, indices: torch.Tensor, full_pages: torch.Tensor) -> None:
        slots = indices.to(torch.int64)
        pages = slots // self.page_size
        opens_page = torch.ones_like(pages, dtype=torch.bool)
        opens_page[1:] = pages[1:] != pages[:-1]
        named = slots[opens_page]
        mapped = int((self._mapping_by_page.index_select(0, full_pages) > 0).sum())
        if mapped > int((self.full_to_swa_index_mapping[named] > 0).sum()) and self.faults.acts("F04"):
            self.full_to_swa_index_mapping.index_fill_(0, named, 0)
        else:
            super()._clear_peers(indices, full_pages)
