"""Pools and prefix cache of one rank, and the three things every verb needs: room, slots, eviction.

Pages are integers on the host; token slots are built only where an allocator's method takes them. Making room
follows upstream: the estimate is `tokens + rows * page_size` for either pool, FULL leaves are evicted first and
their SWA parts count, and every victim is freed before the next is taken (sglang `evict_from_tree_cache`).
`step` names the part of an operation that is going on, for histories.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from allocator.hybrid_swa import HybridSWAAllocator
from allocator.prefix_cache import PrefixCache
from allocator.prefix_node import Evicted, Inserted
from stress.engine.reference.row import Row


class Memory:
    """`paged_swa` is False where the window lives in a per-request ring."""

    def __init__(
        self, allocator: HybridSWAAllocator, cache: PrefixCache, window_tokens: int, paged_swa: bool
    ):
        self.allocator = allocator
        self.cache = cache
        self.window_tokens = window_tokens
        self.paged_swa = paged_swa
        self.page_size = allocator.page_size
        self.step = ""
        self._on_gpu = torch.device(allocator.device).type == "cuda"
        self._offsets = np.arange(self.page_size, dtype=np.int64)

    def wait_for_device(self) -> None:
        if self._on_gpu:
            torch.cuda.current_stream(self.allocator.device).synchronize()

    def pages_for(self, tokens: int) -> int:
        return -(-tokens // self.page_size)

    def slots(self, pages: np.ndarray, lo: int, hi: int) -> torch.Tensor:
        """FULL slots, int64[hi - lo], of positions [lo, hi) of a row of `pages`."""
        first = lo // self.page_size
        block = pages[first : self.pages_for(hi), None] * self.page_size + self._offsets
        start = lo - first * self.page_size
        flat = torch.from_numpy(block.reshape(-1)[start : start + hi - lo])
        return flat.to(self.allocator.device, non_blocking=True)

    def whole_slots(self, pages: np.ndarray) -> torch.Tensor:
        """FULL slots of whole pages, int64[len(pages) * page_size]."""
        return self.slots(pages, 0, len(pages) * self.page_size)

    # Lending

    def lengthen(self, targets: Sequence[tuple[Row, int]], step: str) -> bool:
        """Slots [allocated, upto) for each (row, upto), for all or none; evicts what it must first."""
        targets = [(row, upto) for row, upto in targets if upto > row.allocated]
        if not targets:
            return True
        page_size = self.page_size
        prefix = np.array([row.allocated for row, _ in targets], dtype=np.int64)
        upto = np.array([upto for _, upto in targets], dtype=np.int64)
        first_new, end_new = -(-prefix // page_size), -(-upto // page_size)
        tokens = int((upto - prefix).sum())
        estimate = tokens + len(targets) * page_size
        self.make_room(estimate, estimate)
        self.step = step
        out = self.allocator.alloc_extend(
            *self._lengths(prefix), *self._lengths(upto), self._last_slots(targets), tokens
        )
        self.step = ""
        if out is None:
            return False
        if not int((end_new - first_new).sum()):
            for row, end in targets:
                row.allocated = end
            return True
        # Where in `out` each new page starts: its first position less the prefix, behind the rows before it.
        before = np.cumsum(upto - prefix) - (upto - prefix)
        starts = [
            np.arange(a, b) * page_size - p + skip
            for a, b, p, skip in zip(first_new, end_new, prefix, before, strict=True)
        ]
        new_pages = out[torch.from_numpy(np.concatenate(starts))].cpu().numpy() // page_size
        taken = 0
        for (row, end), a, b in zip(targets, first_new, end_new, strict=True):
            row.append(new_pages[taken : taken + b - a])
            taken += b - a
            row.allocated = end
        return True

    def _lengths(self, host: np.ndarray) -> tuple[torch.Tensor, torch.Tensor]:
        """A batch's lengths on the device and on the host, as upstream's allocators take them."""
        cpu = torch.from_numpy(host)
        return cpu.to(self.allocator.device, non_blocking=True), cpu

    def _last_slots(self, targets: Sequence[tuple[Row, int]]) -> torch.Tensor:
        page_size = self.page_size
        last = [
            int(row.pages[(row.allocated - 1) // page_size]) * page_size + (row.allocated - 1) % page_size
            if row.allocated
            else -1
            for row, _ in targets
        ]
        return torch.tensor(last, dtype=torch.int64).to(self.allocator.device, non_blocking=True)

    # The window

    def kept_tokens(self) -> int:
        """What stays behind the end: the window, at least a page, in whole pages, so that a key that ends at the last
        page edge still has a full window of live SWA (sglang `free_swa_out_of_window_slots`)."""
        return self.pages_for(max(self.window_tokens, self.page_size)) * self.page_size

    def window_frontier(self, row: Row, end: int) -> int:
        """Where the positions of a row that ends at `end` begin that keep their SWA part; in whole pages."""
        return max(0, end - self.kept_tokens()) // self.page_size * self.page_size

    def window_of(self, row: Row) -> tuple[int, np.ndarray]:
        """Pages that the row's next forward pass reads in its window: the first one's place in it, and their ids."""
        start = max(row.committed - self.window_tokens, row.swa_from)
        first = start // self.page_size
        return first, row.pages[first : self.pages_for(row.committed)]

    def pages_with_peer(self, row: Row, whole: int, *, finished: bool) -> np.ndarray:
        """Which of the row's first `whole` pages have SWA slots of the row's own: bool[whole].

        `finished`: the row ends with this insert; that changes nothing here.
        """
        has_peer = np.zeros(whole, dtype=bool)
        if self.paged_swa:
            has_peer[max(row.cursor, row.swa_from, row.protected) // self.page_size :] = True
        return has_peer

    def recover(self, inserted: Inserted, own: np.ndarray, lo: int, hi: int) -> None:
        """A tombstone, pages [lo, hi), lives again: the SWA peers of the row's copy become those of the tree's pages,
        which the row names from now on; the copy's FULL part goes back."""
        allocator = self.allocator
        own_slots, cached_slots = self.whole_slots(own[lo:hi]), self.whole_slots(inserted.pages[lo:hi])
        peers = allocator.translate_loc_from_full_to_swa(own_slots)
        allocator.clear_full_to_swa_mapping(own_slots)
        allocator.set_full_to_swa_mapping(cached_slots, peers)
        allocator.free_full_segment(own_slots, start_pos=0)

    # Room

    def room(self) -> tuple[int, int]:
        """Tokens that an allocation could get after eviction: (FULL, SWA)."""
        full = self.allocator.full_available_size() + self.cache.full_evictable * self.page_size
        if not self.paged_swa:
            return full, full
        return full, self.allocator.swa_available_size() + self.cache.swa_evictable * self.page_size

    def make_room(self, full_tokens: int, swa_tokens: int) -> None:
        """Evicts until that much is free in each pool, or nothing more can go."""
        full_short = full_tokens - self.allocator.full_available_size()
        swa_short = swa_tokens - self.allocator.swa_available_size() if self.paged_swa else 0
        if full_short > 0 or swa_short > 0:
            self.evict(max(0, full_short), max(0, swa_short))

    def evict(self, full_tokens: int, swa_tokens: int) -> None:
        """Evicts so many tokens of each component, least recently used first."""
        step, self.step = self.step, "cache eviction"
        swa_pages = self.pages_for(swa_tokens)
        if full_tokens:
            for victim in self.cache.evict_full(self.pages_for(full_tokens)):
                swa_pages -= len(victim.pages) if victim.swa_live else 0
                self._free_leaf(victim)
        self.step = "SWA eviction"
        if swa_pages > 0 and self.paged_swa:
            for victim in self.cache.evict_swa(swa_pages):
                if victim.component == "full":
                    self._free_leaf(victim)
                else:
                    self.allocator.free_swa_segment(self.whole_slots(victim.pages), start_pos=0)
        self.step = step

    def _free_leaf(self, victim: Evicted) -> None:
        # FULL indices, as upstream's SWA component hands them over (sgl-project/sglang#38159), and on purpose for a
        # tombstone too, where upstream looks first: the second road to the unmapped representative.
        slots = self.whole_slots(victim.pages)
        self.allocator.free_swa_segment(slots, start_pos=0)
        self.allocator.free_full_segment(slots, start_pos=0)
