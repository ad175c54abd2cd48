"""What a page pool, a hybrid allocator, a release strategy and a prefix cache must hold.

A slot is one token's place: slot = page * page_size + offset. Pages of a pool are 1..num_pages; page 0 is
padding, is never lent and must never come back. A page is either free (once on the free list) or lent (to
exactly one holder); free + lent == num_pages after every call that returns. Sizes are in tokens.
Method names and argument order are SGLang's, so that one probe, by method name, fits both.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import numpy as np
    import torch

    from allocator.prefix_node import Evicted, Inserted, Lock, Match, PageCounts, PrefixNode


class SlotLender(Protocol):
    """Lends slots. None means no room, and then nothing at all has changed."""

    def alloc(self, need_size: int) -> torch.Tensor | None:
        """Whole pages: int64[need_size] slots; need_size is a multiple of the page size."""

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
        """Tokens [prefix, seq) of each request, in batch order: int64[extend_num_tokens] slots."""

    def alloc_decode(
        self, seq_lens: torch.Tensor, seq_lens_cpu: torch.Tensor, last_loc: torch.Tensor
    ) -> torch.Tensor | None:
        """One token a request, already counted in seq_lens: int64[batch] slots."""


class SlotReclaimer(Protocol):
    """Takes slots back, whole pages at a time. The caller owns every page it names, from edge to edge."""

    def free(self, indices: torch.Tensor) -> None:
        """Set-shaped: any slots, in any order and number, of the pages to give back."""

    def free_segment(self, indices: torch.Tensor, *, start_pos: int) -> None:
        """Slots of consecutive positions from start_pos on: one slot a page, fixed shapes, no sync."""

    def free_group_begin(self) -> None:
        """Frees are piled from here on. A group inside a group raises AssertionError."""

    def free_group_end(self) -> None:
        """Everything piled goes on the free list: no more, no less."""


class PagePoolContract(SlotLender, SlotReclaimer, Protocol):
    """One paged pool. Its free length is known to the host without asking the device."""

    page_size: int
    num_pages: int

    def clear(self) -> None:
        """Every page is free again, whoever had it."""

    def available_size(self) -> int:
        """Tokens on the free list; piled frees do not count."""

    def get_all_free_pages(self) -> torch.Tensor:
        """int64[free pages], in the order in which they will be lent."""

    def free_page_ids(self, page_ids: torch.Tensor) -> None:
        """Page ids straight onto the free list: neither deduplicated nor range-checked."""


class HybridContract(SlotLender, SlotReclaimer, Protocol):
    """A FULL and a sliding-window (SWA) pool that lend in pairs, joined by a map of FULL slot -> SWA slot.

    0 in the map means no peer. Slots of one FULL page map into one SWA page at matching offsets, or to 0; no
    two FULL pages share an SWA page. A lent SWA page has one holder: the map, or the pending group. The peer
    is read and cleared when a free is asked for, never at the flush: by then the slot may be mapped anew.
    """

    page_size: int
    full_attn_allocator: PagePoolContract
    swa_attn_allocator: PagePoolContract
    full_to_swa_index_mapping: torch.Tensor

    def clear(self) -> None:
        """Both pools are free and nothing is mapped."""

    def available_size(self) -> int:
        """Tokens that can be lent in pairs."""

    def full_available_size(self) -> int:
        """Tokens on the FULL free list."""

    def swa_available_size(self) -> int:
        """Tokens on the SWA free list."""

    def translate_loc_from_full_to_swa(self, indices: torch.Tensor) -> torch.Tensor:
        """SWA slots of FULL slots, same shape; 0 = no peer, -1 stays -1."""

    def set_full_to_swa_mapping(self, full_indices: torch.Tensor, swa_indices: torch.Tensor) -> None:
        """Maps FULL slots [k] to SWA slots [k]; frees nothing."""

    def clear_full_to_swa_mapping(self, full_indices: torch.Tensor) -> None:
        """Forgets the peers of exactly these FULL slots [k]; frees nothing."""

    def free_swa(self, indices: torch.Tensor) -> None:
        """Set-shaped free of the SWA side only; entries without a peer are dropped."""

    def free_swa_segment(self, indices: torch.Tensor, *, start_pos: int) -> None:
        """Fixed-shape free of the SWA side only; entries without a peer are the release strategy's affair."""

    def free_full(self, indices: torch.Tensor) -> None:
        """Set-shaped free of the FULL side only; the peers must be gone already."""

    def free_full_segment(self, indices: torch.Tensor, *, start_pos: int) -> None:
        """Fixed-shape free of the FULL side only; the peers must be gone already."""


class ReleaseStrategy(Protocol):
    """Decides where SWA page ids without a peer (id 0) are dropped, and so what a free costs in syncs."""

    name: str

    def enqueue(self, pages: torch.Tensor) -> torch.Tensor:
        """At a segment free: int64[k] page ids, one a representative; returns those to keep."""

    def flush(self, runs: list[torch.Tensor]) -> torch.Tensor:
        """At the group's end, or at once outside a group: the kept runs -> the ids for the free list."""


class PrefixCacheContract(Protocol):
    """Which pages hold which prefix. A cached page is lent, and belongs to the cache.

    A locked page is neither evicted nor replaced; a lock releases exactly what it acquired, whatever was
    split or revived meanwhile. A hit ends where its window is live, if the model needs the window for a hit.
    """

    def match(self, keys: np.ndarray) -> Match:
        """int64[n] page keys, each naming the whole prefix up to its page: the longest cached prefix."""

    def insert(self, keys: np.ndarray, pages: np.ndarray, swa_live: np.ndarray, protected: int) -> Inserted:
        """Publishes pages; what is cached already keeps its page, and the caller's copy is reported back."""

    def lock(self, node: PrefixNode, holder: Hashable) -> Lock:
        """Holds the prefix that ends at a node until the receipt is unlocked."""

    def unlock(self, receipt: Lock) -> None:
        """Releases what that lock took and nothing else; once."""

    def evict_full(self, need_pages: int) -> Iterator[Evicted]:
        """Unlocked leaves, least recently used first, one victim at a time."""

    def evict_swa(self, need_pages: int) -> Iterator[Evicted]:
        """Nodes lose their SWA part and keep their FULL part, least recently used first."""

    def counts(self) -> PageCounts:
        """Evictable and protected pages of each component."""
