"""An allocator pair for the probe's tests, a ledger that keeps what it was told, and a walk through every method."""

import torch

from allocator.hybrid_swa import HybridSWAAllocator
from stress.check.event import EdgeShape, PoolShape
from stress.check.shadow import Ledger

PAGE = 4
POOLS = (PoolShape("full", 32, PAGE, 0), PoolShape("swa", 16, PAGE, 0))
EDGES = (EdgeShape("full", "swa"),)


class Log(Ledger):
    """A ledger that keeps the events."""

    def __init__(self, level=1, **options):
        super().__init__(POOLS, EDGES, level, **options)
        self.seen = []
        self.listen(self.seen.append)

    def told(self, *kinds):
        return [(e.kind.value, e.pool, e.pages.tolist()) for e in self.seen if e.kind in kinds]


def hybrid(release="unpatched"):
    return HybridSWAAllocator(32 * PAGE, 16 * PAGE, PAGE, release=release)


def extend(allocator, rows, last):
    prefix, seq = (torch.tensor(lens) for lens in zip(*rows, strict=True))
    tokens = sum(hi - lo for lo, hi in rows)
    return allocator.alloc_extend(prefix, prefix, seq, seq, torch.tensor(last), tokens)


def trace(allocator):
    """A fixed walk through every method; what the target answered and holds afterwards."""
    seen = []
    slots = allocator.alloc(3 * PAGE)
    seen.append(slots.tolist())
    seen.append(extend(allocator, [(0, 6), (0, 3)], [-1, -1]).tolist())
    seen.append(allocator.alloc(1000 * PAGE))
    allocator.free_group_begin()
    allocator.free_swa_segment(slots[: 2 * PAGE], start_pos=0)
    allocator.free_full(slots[: 2 * PAGE])
    allocator.free_group_end()
    allocator.free(slots[2 * PAGE :])
    seen.append(allocator.full_attn_allocator.get_all_free_pages().tolist())
    seen.append(allocator.swa_attn_allocator.get_all_free_pages().tolist())
    seen.append(allocator.full_to_swa_index_mapping.tolist())
    return seen
