"""F07: a free group that opens inside another one drops what the outer one has piled (sgl-project/sglang#36646).

Upstream's assertion against nested groups is gone as well. Who nests is the engine's fault of the same name: an abort
inside result processing that opens a group of its own.
"""

from __future__ import annotations


class PileDropped:
    """Overrides a HybridSWAAllocator: each begin starts with empty piles, whatever waits in them."""

    def free_group_begin(self) -> None:
        if not self.is_not_in_free_group:
            self._close_group()
            self.full_attn_allocator._close_group()
        super().free_group_begin()
