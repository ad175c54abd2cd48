"""Wrong hybrid allocators that the model test must flag, each one small mistake away from the right one."""

from allocator.hybrid_swa import HybridSWAAllocator


class ClearsNamedSlots(HybridSWAAllocator):
    """Frees whole pages and clears only the slots that were named (sglang#27779)."""

    def _clear_peers(self, indices, full_pages):
        self.clear_full_to_swa_mapping(indices)


class KeepsThePeer(HybridSWAAllocator):
    """Frees SWA pages and leaves the map pointing at them."""

    def _clear_peers(self, indices, full_pages):
        return


class IgnoresTheStart(HybridSWAAllocator):
    """Takes every page_size-th slot, as if each segment began at a page's start."""

    def _representatives(self, indices, start_pos):
        return indices[:: self.page_size]


class LosesTheGroup(HybridSWAAllocator):
    """Forgets the SWA pages that wait when a group ends."""

    def _flush_group(self):
        self.swa_page_ids_group.clear()
        super()._flush_group()


class FreesAtTheFlush(HybridSWAAllocator):
    """Keeps the slots of a grouped free and reads their peers only when the group ends (sglang#36135)."""

    _late: tuple = ()

    def free_swa_segment(self, indices, *, start_pos):
        if self.is_not_in_free_group:
            super().free_swa_segment(indices, start_pos=start_pos)
        else:
            self._late = (*self._late, (indices, start_pos))

    def free_group_end(self):
        late, self._late = self._late, ()
        for indices, start_pos in late:
            super().free_swa_segment(indices, start_pos=start_pos)
        super().free_group_end()


class ForgetsToRollBack(HybridSWAAllocator):
    """Takes FULL pages before it knows that the SWA pool is short (kvcached#364)."""

    def alloc(self, need_size):
        if self.swa_available_size() < need_size:
            self.full_attn_allocator.alloc(need_size)
            return None
        return super().alloc(need_size)


MUTANTS = [ClearsNamedSlots, KeepsThePeer, IgnoresTheStart, LosesTheGroup, FreesAtTheFlush, ForgetsToRollBack]
