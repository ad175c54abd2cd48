"""The engine's side of a per-request SWA ring: rows, what the map names of them, and what a forward pass does there.

A row of the ring is whole pages: page b of a request (positions from b * page_size on) lies in page b % row_pages of
its row. The map names it for the FULL page that the request took for b, from when the slots are given until a later
page takes its place or the request ends. A page that the request only hit has no entry of its: its window part was
never in this row. Where the checkpoint repoints the row to another copy of a page, the entry went with the own copy.
A prefix hit writes nothing here, so it is cut to leave the last window of the prompt to be computed again
(sgl-project/sglang#30339); what lies ahead of that is read as far as the row has it, as upstream's re-prefill does.
"""

from __future__ import annotations

import numpy as np
import torch

from allocator.swa_ring import SWARing
from stress.engine.contract import RequestSpec, RowPass
from stress.engine.reference.memory import Memory
from stress.engine.reference.row import Row


class WindowRing:
    """`ring.row_pages` must hold the window, which touches a page more than it is long, and what is reserved ahead."""

    def __init__(self, memory: Memory, ring: SWARing) -> None:
        self.memory = memory
        self.ring = ring
        self._offsets = np.arange(memory.page_size, dtype=np.int64)

    def most_cached(self, spec: RequestSpec) -> int:
        """Tokens of the prompt that a hit or a load may bring."""
        return max(0, spec.prompt_tokens - self.memory.window_tokens)

    def acquire(self, row: Row) -> None:
        """A row of the ring for a request that computes on from what it has by now."""
        row.ring_row = self.ring.acquire(row.spec.rid, row.committed)
        row.ring_end = row.committed // self.memory.page_size
        row.ring_named = np.zeros(self.ring.row_pages, dtype=np.int64)

    def enter(self, row: Row) -> None:
        """Slots were given up to `row.allocated`: the newest pages take the places of those that left the window."""
        end = self.memory.pages_for(row.allocated)
        if end <= row.ring_end:
            return
        first = max(row.ring_end, end - self.ring.row_pages)
        self._forget(row, end - self.ring.row_pages)
        blocks = np.arange(first, end)
        pages = row.pages[first:end]
        places = self._places(row, blocks)
        slots = (places[:, None] * self.memory.page_size + self._offsets).reshape(-1)
        allocator = self.memory.allocator
        allocator.set_full_to_swa_mapping(
            self.memory.whole_slots(pages), torch.from_numpy(slots).to(allocator.device, non_blocking=True)
        )
        row.ring_named[blocks % self.ring.row_pages] = pages
        row.ring_end = end

    def release(self, row: Row) -> None:
        """The request ends or steps back: nothing names its row any more, and the next one may have it."""
        self._forget(row, row.ring_end)
        self.ring.release(row.ring_row)

    def _forget(self, row: Row, end: int) -> None:
        """Clears the entries of the row's pages before page `end`: those that it made and that are still there."""
        blocks = np.arange(max(0, row.ring_end - self.ring.row_pages), min(end, row.ring_end))
        if not len(blocks):
            return
        pages, at = row.pages[blocks], blocks % self.ring.row_pages
        mine = row.ring_named[at] == pages
        row.ring_named[at] = 0
        if mine.any():
            memory = self.memory
            step, memory.step = memory.step, "window"
            memory.allocator.free_swa_segment(memory.whole_slots(pages[mine]), start_pos=0)
            memory.step = step

    def _places(self, row: Row, blocks: np.ndarray) -> np.ndarray:
        """Pages of the ring's storage where pages `blocks` of the request lie."""
        return row.ring_row.row * self.ring.row_pages + blocks % self.ring.row_pages

    def last_pass(self, row: Row, accepted: int) -> RowPass:
        """What the pass that committed the last `accepted` positions wrote to the row, and what its end reads there."""
        page_size, window = self.memory.page_size, self.memory.window_tokens
        row_pages, lent = self.ring.row_pages, row.ring_row.row
        end = self.memory.pages_for(row.committed)
        first = max((row.committed - accepted) // page_size, end - row_pages)
        # From the prompt's end on the model reads a whole window, whatever was computed; ahead of that, what is there.
        floor = min(self.ring.written_from(lent), max(0, row.spec.prompt_tokens - window))
        start = max(floor, row.committed - window) // page_size
        places = [lent * row_pages + page % row_pages for page in range(min(first, start), end)]
        return RowPass(
            places[first - end :], list(range(first, end)), places[start - end :], list(range(start, end))
        )
