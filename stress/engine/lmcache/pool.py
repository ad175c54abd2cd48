"""LMCache's paged allocator as a pool of numbered pages: lend, give up, and what may be read of it.

A page is one memory object, for good: the allocator makes all of them when it is built, and hands out the same ones
again. Its number is where its memory lies in the buffer, from 1 on; the object's own metadata is the target's to get
wrong. Each carries a reference count; who takes a page has one, and `give_up` brings it down.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from stress.engine.lmcache.tree_import import LMCacheTree

Page = Any  # a TensorMemoryObj of the tree


class PagePool:
    """`target`: the tree's PagedTensorMemoryAllocator, of `pages` pages of `page_size` tokens, on the host."""

    def __init__(self, tree: LMCacheTree, pages: int, page_size: int) -> None:
        # One layer with one value a token: nothing reads them, and a page is 4 bytes a token.
        self._shape, self._dtype = torch.Size([2, 1, page_size, 1]), torch.float16
        self.page_bytes = math.prod(self._shape) * self._dtype.itemsize
        self.page_size, self.pages = page_size, pages
        buffer = torch.zeros(pages * self.page_bytes, dtype=torch.uint8)
        self.target = tree.paged.PagedTensorMemoryAllocator(buffer, [self._shape], [self._dtype])

    def lend(self, count: int) -> list[Page] | None:
        """So many pages, each with one reference. None: there are not so many, and none is taken."""
        return self.target.batched_allocate(self._shape, self._dtype, count)

    def give_up(self, pages: Sequence[Page]) -> None:
        """A reference to each of them, one after another, as a client of the allocator does."""
        for page in pages:
            page.ref_count_down()

    def page_of(self, page: Page) -> int:
        """Its number, from 1 on."""
        return (page.data_ptr - self.target.buffer_ptr) // self.page_bytes + 1

    def free_pages(self) -> int:
        """As the target says."""
        return self.target.address_manager.get_free_size() // self.page_bytes
