"""F25: a client gives a page up twice (LMCache/LMCache#5005).

A pool that counts references can refuse that. LMCache's up to 0.5.6 sets the count, which is below zero, to zero and
frees the page once more: it is in the free list twice, and from the second lend on two requests own it.
"""

from __future__ import annotations

from allocator.faults.log import FaultLog


class GivenUpTwice:
    """Overrides an LMCacheEngine: of the pages of a request that ends the first one is given up once more."""

    faults: FaultLog

    def _give_up(self, pages: list) -> None:
        super()._give_up(pages)
        if pages and self.faults.acts("F25"):
            super()._give_up(pages[:1])
