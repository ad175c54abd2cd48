"""A FULL pool and a sliding-window (SWA) pool that lend in pairs, joined by a map of FULL slot -> SWA slot.

Owns both pools and the map (peer_map.py). Peers are read and cleared when a free is asked for; in a free group
the page ids wait in `swa_page_ids_group`. Ids without a peer are the release strategy's affair (release.py).
A free outside a group, and a group's end, asserts available <= size as upstream does; the pages are on the
free list by then, and the allocator stays usable. Freeing clears the map of whole pages (sglang#27779).
`ring=True`: the window lives in a ring of the request. The map may name the ring's slots, written by whoever owns it;
a free clears the entry and gives nothing back: the SWA pool never lent those pages (sglang#38571).
"""

from __future__ import annotations

import torch

from allocator.extend_layout import count_new_pages
from allocator.integrity import mapping_faults
from allocator.page_pool import PagePool, page_representatives
from allocator.peer_map import PeerMap
from allocator.release import release_strategy


class HybridSWAAllocator(PeerMap):
    """`size` FULL and `size_swa` SWA tokens in pages of `page_size`. Slots in and out are FULL slots.

    Raises ValueError for sizes that are no multiple of page_size and for an unknown release strategy.
    A load that skips SWA asks `full_attn_allocator.alloc(n)`: FULL pages without peers.
    """

    def __init__(
        self,
        size: int,
        size_swa: int,
        page_size: int,
        device: str | torch.device = "cpu",
        release: str = "unpatched",
        ring: bool = False,
    ):
        super().__init__(size, page_size, device)
        self.size_full = size
        self.size_swa = size_swa
        self.page_size = page_size
        self.device = device
        self.ring = ring
        self.release = release_strategy(release)
        self.full_attn_allocator = PagePool(size, page_size, device)
        self.swa_attn_allocator = PagePool(size_swa, page_size, device)
        self._close_group()

    def clear(self) -> None:
        """Both pools are free, nothing is mapped, an open group is dropped."""
        self.full_attn_allocator.clear()
        self.swa_attn_allocator.clear()
        self._mapping_by_page.zero_()
        self._close_group()

    def available_size(self) -> int:
        """Tokens that can be lent in pairs; in ring mode FULL tokens."""
        if self.ring:
            return self.full_available_size()
        return min(self.full_available_size(), self.swa_available_size())

    def full_available_size(self) -> int:
        """Tokens on the FULL free list."""
        return self.full_attn_allocator.available_size()

    def swa_available_size(self) -> int:
        """Tokens on the free list of the paged SWA pool; all of it, always, in ring mode."""
        return self.swa_attn_allocator.available_size()

    # Lending

    def alloc(self, need_size: int) -> torch.Tensor | None:
        """FULL slots int64[need_size] of whole pages, each with a peer; None if either pool is short."""
        if self.ring:
            return self.full_attn_allocator.alloc(need_size)
        if need_size > self.available_size():
            return None
        full = self.full_attn_allocator.alloc(need_size)
        return self._pair(full, self.swa_attn_allocator.alloc(need_size))

    def alloc_extend(
        self,
        prefix_lens: torch.Tensor,
        prefix_lens_cpu: torch.Tensor,
        seq_lens: torch.Tensor,
        seq_lens_cpu: torch.Tensor,
        last_loc: torch.Tensor,
        extend_num_tokens: int,
        num_new_pages: int | None = None,
    ) -> torch.Tensor | None:
        """As `PagePool.alloc_extend`, in both pools; None, and nothing changed, if either is short.

        An unaligned prefix's last_loc must have a peer: its SWA page is continued. A check would be a sync.
        """
        lengths = (prefix_lens, prefix_lens_cpu, seq_lens, seq_lens_cpu)
        if self.ring:
            return self.full_attn_allocator.alloc_extend(*lengths, last_loc, extend_num_tokens, num_new_pages)
        # Room is checked in both pools before either lends, so there is nothing to roll back (kvcached#364).
        need_pages = count_new_pages(prefix_lens_cpu, seq_lens_cpu, self.page_size)
        if need_pages * self.page_size > self.available_size():
            return None
        swa_last_loc = self.translate_loc_from_full_to_swa(last_loc)
        full = self.full_attn_allocator.alloc_extend(*lengths, last_loc, extend_num_tokens, num_new_pages)
        swa = self.swa_attn_allocator.alloc_extend(*lengths, swa_last_loc, extend_num_tokens, num_new_pages)
        return self._pair(full, swa)

    def alloc_decode(
        self, seq_lens: torch.Tensor, seq_lens_cpu: torch.Tensor, last_loc: torch.Tensor
    ) -> torch.Tensor | None:
        """As `PagePool.alloc_decode`, in both pools; None, and nothing changed, if either is short."""
        if self.ring:
            return self.full_attn_allocator.alloc_decode(seq_lens, seq_lens_cpu, last_loc)
        swa_last_loc = self.translate_loc_from_full_to_swa(last_loc)
        need_pages = count_new_pages(seq_lens_cpu - 1, seq_lens_cpu, self.page_size)
        if need_pages * self.page_size > self.available_size():
            return None
        full = self.full_attn_allocator.alloc_decode(seq_lens, seq_lens_cpu, last_loc)
        return self._pair(full, self.swa_attn_allocator.alloc_decode(seq_lens, seq_lens_cpu, swa_last_loc))

    def _pair(self, full: torch.Tensor, swa: torch.Tensor) -> torch.Tensor:
        self.set_full_to_swa_mapping(full, swa)
        return full

    # Reclaiming

    def free(self, indices: torch.Tensor) -> None:
        """Frees the pages of these slots [k] in both pools; set-shaped, syncs."""
        # An assert on the SWA side must not keep the FULL pages from going back.
        try:
            self.free_swa(indices)
        finally:
            self.free_full(indices)

    def free_swa(self, indices: torch.Tensor) -> None:
        """Frees the SWA peers of these pages, all slots; set-shaped, drops entries without a peer, syncs."""
        if indices.numel() == 0:
            return
        full_pages = torch.unique(indices.to(torch.int64) // self.page_size)
        peers = self._mapping_by_page.index_select(0, full_pages)
        # A page's peers are one run: collapsing runs first leaves little to sort.
        swa_pages = torch.unique(torch.unique_consecutive(peers[peers > 0] // self.page_size))
        self._clear_peers(indices, full_pages)
        if self._lent_peers():
            self._release_swa_pages(swa_pages)
        self._check_swa_available("free_swa")

    def free_full(self, indices: torch.Tensor) -> None:
        """Frees the FULL pages of these slots [k]; their peers must be gone already."""
        self.full_attn_allocator.free(indices)
        self._check_full_available("free_full")

    def free_segment(self, indices: torch.Tensor, *, start_pos: int) -> None:
        """Frees the pages of consecutive positions from start_pos on in both pools; fixed shapes."""
        try:
            self.free_swa_segment(indices, start_pos=start_pos)
        finally:
            self.free_full_segment(indices, start_pos=start_pos)

    def free_swa_segment(self, indices: torch.Tensor, *, start_pos: int) -> None:
        """Frees the SWA peers of consecutive positions from start_pos on, one representative a page.

        A representative without a peer becomes page 0 and goes to the release strategy with the others
        (sglang#38159, #38519). Syncs as often as the strategy does.
        """
        if indices.numel() == 0:
            return
        representatives = self._representatives(indices, start_pos)
        swa_pages = self.translate_loc_from_full_to_swa(representatives) // self.page_size
        self._clear_peers(indices, representatives.to(torch.int64) // self.page_size)
        if self._lent_peers():
            self._release_swa_pages(self.release.enqueue(swa_pages))
        self._check_swa_available("free_swa_segment")

    def free_full_segment(self, indices: torch.Tensor, *, start_pos: int) -> None:
        """Frees the FULL pages of consecutive positions from start_pos on; their peers must be gone."""
        self.full_attn_allocator.free_segment(indices, start_pos=start_pos)
        self._check_full_available("free_full_segment")

    def _representatives(self, indices: torch.Tensor, start_pos: int) -> torch.Tensor:
        return page_representatives(indices, start_pos, self.page_size)

    def _lent_peers(self) -> bool:
        # What the map names is the SWA pool's to take back, or a ring's, which was never lent from here.
        return not self.ring

    def _release_swa_pages(self, pages: torch.Tensor) -> None:
        if not self.is_not_in_free_group:
            self.swa_page_ids_group.append(pages)
        else:
            self._credit_swa([pages])

    def _credit_swa(self, runs: list[torch.Tensor]) -> None:
        self.swa_attn_allocator.free_page_ids(self.release.flush(runs))

    # Free groups

    def free_group_begin(self) -> None:
        """Frees of both pools wait until `free_group_end`. Raises AssertionError inside a group."""
        if not self.is_not_in_free_group:
            raise AssertionError("free groups cannot be nested")
        self.is_not_in_free_group = False
        self.full_attn_allocator.free_group_begin()

    def free_group_end(self) -> None:
        """Puts the waiting pages on both free lists, then asserts available <= size in each pool."""
        self._flush_group()
        self._check_full_available("free_group_end")
        self._check_swa_available("free_group_end")

    def frees_wait(self) -> bool:
        """Whether an open group holds frees of either pool back."""
        return bool(self.swa_page_ids_group) or self.full_attn_allocator.frees_wait()

    def _flush_group(self) -> None:
        waiting = self.swa_page_ids_group
        self._close_group()
        self.full_attn_allocator.free_group_end()
        if waiting:
            self._credit_swa(waiting)

    def _close_group(self) -> None:
        self.is_not_in_free_group = True
        self.swa_page_ids_group: list[torch.Tensor] = []

    def _check_full_available(self, where: str) -> None:
        if self.is_not_in_free_group and self.full_available_size() > self.size_full:
            raise AssertionError(
                f"{where}: FULL pool available_size {self.full_available_size()} > size {self.size_full}"
            )

    def _check_swa_available(self, where: str) -> None:
        if self.is_not_in_free_group and self.swa_available_size() > self.size_swa:
            raise AssertionError(
                f"{where}: SWA pool available_size {self.swa_available_size()} > size {self.size_swa}"
            )

    def check_integrity(self) -> list[str]:
        """Faults of both free lists and of the map in words, [] if all is sound. O(slots), and syncs."""
        faults = [f"FULL {fault}" for fault in self.full_attn_allocator.check_integrity()]
        faults += [f"SWA {fault}" for fault in self.swa_attn_allocator.check_integrity()]
        swa_free_pages = self.swa_attn_allocator.get_all_free_pages().cpu().numpy()
        if self.ring:
            swa_free_pages = swa_free_pages[:0]  # the map names another storage
        return faults + mapping_faults(self._mapping_by_page.cpu().numpy(), swa_free_pages)
