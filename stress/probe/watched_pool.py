"""A paged pool of the target as the probe needs it: its name, its free list, what was lent in the call at hand."""

from __future__ import annotations

from stress.check.event import PoolShape
from stress.probe.capture import Column


class WatchedPool:
    """`target` is the sub pool of the target; a host number says how long its free list is, in every version."""

    def __init__(self, shape: PoolShape, target):
        self.shape = shape
        self.name = shape.name
        self.page_size = shape.page_size
        self.target = target
        self.freeing = False  # a free of this pool is running
        self.lent: list[Column] = []  # in the outermost call at hand

    def free_pages(self) -> int:
        """Length of the free list, in pages."""
        return self.target.available_size() // self.page_size

    def freed_to(self, count: int):
        """The tensor at whose front the `count` pages lie that were freed last. With need_sort upstream stages them."""
        if getattr(self.target, "need_sort", False):
            for name in ("release_pages", "staged_pages"):
                staged = getattr(self.target, name, None)
                if staged is not None and len(staged) >= count:
                    return staged
        return self.target.get_all_free_pages()
