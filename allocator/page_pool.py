"""One paged pool of token slots: lends whole pages, page 0 is padding and is never lent.

Owns `free_pages`, int64 page ids on `device`; the front is lent first, and what is freed goes to the front.
Its length is a tensor's shape, so the host knows the room without a sync. A failed lend changes nothing.
Like upstream's, frees trust the caller: a page freed twice, or page 0, is on the list twice, or at all;
`check_integrity` sees that afterwards. Differs from upstream: no second, sorted list of staged pages.
"""

from __future__ import annotations

import numpy as np
import torch

from allocator.extend_layout import lay_out_extend, place_tokens
from allocator.integrity import free_list_faults


def page_representatives(indices: torch.Tensor, start_pos: int, page_size: int) -> torch.Tensor:
    """One slot a page of `indices`, the slots of consecutive positions from start_pos on.

    positions   |...sssss|ssssssss|sss.....|    start_pos inside the first page
    taken           ^     ^        ^
    """
    first_page_rest = -start_pos % page_size
    if first_page_rest == 0:
        return indices[::page_size]
    return torch.cat((indices[:1], indices[first_page_rest::page_size]))


class PagePool:
    """`size` tokens in pages of `page_size` tokens, page ids 1..num_pages, tensors on `device`.

    Raises ValueError if size is not a positive multiple of page_size.
    """

    def __init__(self, size: int, page_size: int, device: str | torch.device = "cpu"):
        if page_size < 1:
            raise ValueError(f"PagePool: page_size {page_size} is not positive; give 1 token or more")
        if size < page_size or size % page_size:
            pages = max(1, size // page_size)
            raise ValueError(
                f"PagePool: size {size} tokens is not a positive multiple of page_size {page_size}; "
                f"give {pages * page_size} for {pages} pages"
            )
        self.size = size
        self.page_size = page_size
        self.num_pages = size // page_size
        self.device = device
        self._offsets = torch.arange(page_size, device=device)
        self.clear()

    def clear(self) -> None:
        """Every page is free again, in order 1..num_pages; an open group is dropped."""
        self.free_pages = torch.arange(1, self.num_pages + 1, device=self.device)
        self._close_group()

    # Lending

    def available_size(self) -> int:
        """Tokens on the free list; frees piled in an open group do not count."""
        return self.free_pages.numel() * self.page_size

    def get_all_free_pages(self) -> torch.Tensor:
        """int64[free pages] in lending order; a view, not to be written."""
        return self.free_pages

    def alloc(self, need_size: int) -> torch.Tensor | None:
        """Slots int64[need_size] of whole pages, or None if they are not free.

        Raises ValueError if need_size is negative or not a multiple of the page size.
        """
        if need_size < 0 or need_size % self.page_size:
            rounded = max(0, -(-need_size // self.page_size) * self.page_size)
            raise ValueError(
                f"alloc: need_size {need_size} is not a multiple of page_size {self.page_size}; "
                f"ask for {rounded} tokens"
            )
        pages = self._take_pages(need_size // self.page_size)
        if pages is None:
            return None
        return (pages.unsqueeze(1) * self.page_size + self._offsets).view(-1)

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
        """Slots int64[extend_num_tokens] of tokens [prefix, seq) of each request, or None if pages are short.

        All lengths are tokens, [requests]; last_loc is the slot of token prefix - 1 (any value if prefix is
        page-aligned). The *_cpu copies decide every shape; the device copies are upstream's, and unread.
        Raises ValueError if a total that the caller gives is not that of the lengths.
        """
        layout = lay_out_extend(prefix_lens_cpu, seq_lens_cpu, self.page_size)
        if layout.tokens != extend_num_tokens:
            raise ValueError(
                f"alloc_extend: extend_num_tokens {extend_num_tokens} differs from the {layout.tokens} "
                "tokens between prefix_lens_cpu and seq_lens_cpu; pass their sum"
            )
        if num_new_pages is not None and num_new_pages != layout.new_pages:
            raise ValueError(
                f"alloc_extend: num_new_pages {num_new_pages} differs from the {layout.new_pages} pages that "
                "the lengths need; leave it out"
            )
        pages = self._take_pages(layout.new_pages)
        if pages is None:
            return None
        return place_tokens(layout, last_loc, pages, self.page_size)

    def alloc_decode(
        self, seq_lens: torch.Tensor, seq_lens_cpu: torch.Tensor, last_loc: torch.Tensor
    ) -> torch.Tensor | None:
        """Slots int64[requests] of token seq - 1 of each request, or None if pages are short.

        seq_lens already count the token; last_loc is the slot of token seq - 2. A token at a page's start
        opens a new page, any other follows last_loc.
        """
        opens_page = np.flatnonzero((np.asarray(seq_lens_cpu) - 1) % self.page_size == 0)
        pages = self._take_pages(len(opens_page))
        if pages is None:
            return None
        slots = last_loc.to(torch.int64) + 1
        if len(opens_page):
            rows = torch.from_numpy(opens_page).to(self.device, non_blocking=True)
            slots.index_copy_(0, rows, pages * self.page_size)
        return slots

    def _take_pages(self, count: int) -> torch.Tensor | None:
        if count > self.free_pages.numel():
            return None
        pages, self.free_pages = self.free_pages[:count], self.free_pages[count:]
        return pages

    # Reclaiming

    def free(self, indices: torch.Tensor) -> None:
        """Frees each page that has a slot in `indices`, once. One sync, in a group one for the group."""
        if indices.numel() == 0:
            return
        pages = indices.to(torch.int64) // self.page_size
        if self.is_not_in_free_group:
            self._push(torch.unique(pages))
        else:
            self._set_pile.append(pages)

    def free_segment(self, indices: torch.Tensor, *, start_pos: int) -> None:
        """Frees the pages of consecutive positions from start_pos on; fixed shapes, no dedup, no sync."""
        if indices.numel():
            self.free_page_ids(self._representatives(indices, start_pos) // self.page_size)

    def free_page_ids(self, page_ids: torch.Tensor) -> None:
        """Puts int64[k] page ids on the free list as they are: no dedup, no range check, no sync."""
        if page_ids.numel() == 0:
            return
        if self.is_not_in_free_group:
            self._push(page_ids)
        else:
            self._pile.append(page_ids)

    def free_group_begin(self) -> None:
        """Frees are piled until `free_group_end`. Raises AssertionError inside a group, as upstream does."""
        if not self.is_not_in_free_group:
            raise AssertionError("free groups cannot be nested")
        self.is_not_in_free_group = False

    def free_group_end(self) -> None:
        """Puts what was piled on the free list; slots given to `free` are one set for the whole group."""
        piles = self._pile
        if self._set_pile:
            piles.append(torch.unique(torch.cat(self._set_pile)))
        self._close_group()
        if piles:
            self._push(*piles)

    def frees_wait(self) -> bool:
        """Whether an open group holds frees back."""
        return bool(self._pile or self._set_pile)

    def _close_group(self) -> None:
        self.is_not_in_free_group = True
        self._pile: list[torch.Tensor] = []
        self._set_pile: list[torch.Tensor] = []

    def _representatives(self, indices: torch.Tensor, start_pos: int) -> torch.Tensor:
        return page_representatives(indices, start_pos, self.page_size)

    def _push(self, *piles: torch.Tensor) -> None:
        self.free_pages = torch.cat((*piles, self.free_pages))

    def check_integrity(self) -> list[str]:
        """Faults of the free list in words, [] if it is sound. O(pool), and syncs."""
        return free_list_faults(self.free_pages.cpu().numpy(), self.num_pages)
