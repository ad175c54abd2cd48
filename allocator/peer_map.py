"""The map of FULL slot -> SWA slot: what a hybrid allocator asks for the peers of its slots.

`full_to_swa_index_mapping`, int64[size + page_size + 1]: 0 = no peer, and a last -1 so that index -1 translates to
-1. The map owns no page and frees none: whose the slots are that it names, and when an entry has to go, is its
allocator's affair. Names are SGLang's; everything here is of fixed shape and without a sync.
"""

from __future__ import annotations

import torch


class PeerMap:
    """Peers of the slots of `size` FULL tokens in pages of `page_size`, the padding page 0 included; none at first."""

    def __init__(self, size: int, page_size: int, device: str | torch.device):
        self.full_to_swa_index_mapping = torch.zeros(size + page_size + 1, dtype=torch.int64, device=device)
        self.full_to_swa_index_mapping[-1] = -1
        # The same storage, one row a FULL page: whole pages are cleared without naming their tokens.
        self._mapping_by_page = self.full_to_swa_index_mapping[:-1].view(-1, page_size)

    def translate_loc_from_full_to_swa(self, indices: torch.Tensor) -> torch.Tensor:
        """SWA slots of FULL slots, same shape; 0 = no peer, -1 stays -1."""
        return self.full_to_swa_index_mapping[indices]

    def set_full_to_swa_mapping(self, full_indices: torch.Tensor, swa_indices: torch.Tensor) -> None:
        """Maps FULL slots [k] to SWA slots [k]; a peer that was there is forgotten, not freed."""
        # scatter_ costs a third of index_copy_ on a CPU; the FULL slots are distinct, so it is deterministic.
        self.full_to_swa_index_mapping.scatter_(0, full_indices.to(torch.int64), swa_indices.to(torch.int64))

    def clear_full_to_swa_mapping(self, full_indices: torch.Tensor) -> None:
        """Forgets the peers of exactly these FULL slots [k]; frees nothing."""
        self.full_to_swa_index_mapping.index_fill_(0, full_indices.to(torch.int64), 0)

    def _clear_peers(self, indices: torch.Tensor, full_pages: torch.Tensor) -> None:
        # `indices` are the slots that the caller named; their whole pages lose their peers.
        self._mapping_by_page.index_fill_(0, full_pages, 0)
