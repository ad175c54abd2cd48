"""What a hybrid allocator must hold, in plain sets and dicts: the oracle of test_allocator_model.

It learns slots from what was lent, checks each lend against its own free sets, and applies frees by the
rules: whole pages, peers taken when the free is asked for, back on the list at the group's end.
"""

from collections import Counter


class Row:
    """One request's slots by position; its first `loaded` and `evicted` tokens have no SWA."""

    def __init__(self, slots, loaded=0):
        self.slots = slots
        self.loaded = loaded
        self.evicted = 0


class Oracle:
    """Free and waiting pages of both pools and the token map, in sets and dicts."""

    def __init__(self, full_pages, swa_pages, page_size):
        self.page_size = page_size
        self.full_free = set(range(1, full_pages + 1))
        self.swa_free = set(range(1, swa_pages + 1))
        self.full_waiting, self.swa_waiting = set(), set()
        self.peer = {}
        self.grouped = False

    def lend_page(self, free, page):
        assert page in free, f"page {page} was lent and was not free"
        free.remove(page)

    def lend(self, slots, swa_slots):
        """Slots of one request, in order; one at a page's start opens a page. A load has no swa_slots."""
        for at, slot in enumerate(slots):
            if slot % self.page_size == 0:
                self.lend_page(self.full_free, slot // self.page_size)
            if swa_slots is not None:
                swa = swa_slots[at]
                assert swa % self.page_size == slot % self.page_size
                if swa % self.page_size == 0:
                    self.lend_page(self.swa_free, swa // self.page_size)
                assert slot not in self.peer
                self.peer[slot] = swa

    def pages(self, slots):
        return {slot // self.page_size for slot in slots}

    def reclaim_swa(self, slots):
        gone = [
            s for page in self.pages(slots) for s in range(page * self.page_size, (page + 1) * self.page_size)
        ]
        pages = {self.peer.pop(slot) // self.page_size for slot in gone if slot in self.peer}
        (self.swa_waiting if self.grouped else self.swa_free).update(pages)

    def reclaim_full(self, slots):
        (self.full_waiting if self.grouped else self.full_free).update(self.pages(slots))

    def end_group(self):
        self.full_free |= self.full_waiting
        self.swa_free |= self.swa_waiting
        self.full_waiting, self.swa_waiting = set(), set()
        self.grouped = False

    def differences(self, allocator):
        """What the allocator holds that these sets do not, in words; [] if all is equal."""
        found = []
        for name, pool, free in (
            ("FULL", allocator.full_attn_allocator, self.full_free),
            ("SWA", allocator.swa_attn_allocator, self.swa_free),
        ):
            extra = Counter(pool.get_all_free_pages().tolist())
            extra.subtract(free)
            if any(extra.values()):
                found.append(f"{name} free list differs: { ({p: n for p, n in sorted(extra.items()) if n}) }")
            if pool.available_size() != len(free) * self.page_size:
                found.append(f"{name} available {pool.available_size()}")
        mapping = allocator.full_to_swa_index_mapping[:-1]
        keys = mapping.nonzero().view(-1)
        if dict(zip(keys.tolist(), mapping[keys].tolist(), strict=True)) != self.peer:
            found.append("map differs")
        return found
