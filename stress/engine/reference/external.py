"""The linker's side of the reference engine: what can be restored, loads into rows, offloads of new pages.

A load's slots are private to the request until its first checkpoint inserts them (upstream since 0.5.22). With
a linker that skips SWA they have no peers; otherwise the pages of the window get SWA pages and the cursor stands
at their start. Pages on their way out are pinned by a lock on their node until the transfer has ended.
"""

from __future__ import annotations

from collections import Counter

import numpy as np

from allocator.prefix_node import Inserted, Lock
from linker.direct import DirectLinker
from stress.engine.reference.memory import Memory
from stress.engine.reference.row import Row


class External:
    """`linker` None: there is no external store, nothing is ever restored or stored."""

    def __init__(self, memory: Memory, linker: DirectLinker | None, *, cursor_moved: bool) -> None:
        self.memory = memory
        self.linker = linker
        self.cursor_moved = cursor_moved
        self.marks: Counter[str] = Counter()
        self._loading: dict[int, Row] = {}
        self._pins: dict[int, Lock] = {}

    @property
    def window_pages(self) -> int:
        return self.memory.pages_for(self.memory.window_tokens)

    def restorable(self, keys: np.ndarray, local_pages: int) -> int:
        """How many pages after the local hit can be restored so that the window behind them is whole."""
        if self.linker is None or local_pages >= len(keys):
            return 0
        pages = self.linker.lookup(keys[local_pages:])
        if self.linker.skips_swa or not pages:
            return pages
        # The window of a restored prefix is restored whole, so each of its last pages must be stored with SWA.
        stored = self.linker.swa_stored(keys[: local_pages + pages])
        while (
            pages and not stored[max(0, local_pages + pages - self.window_pages) : local_pages + pages].all()
        ):
            pages -= 1
        return pages

    def load_back(self, row: Row, pages: int, now_us: int) -> int | None:
        """Slots for `pages` pages behind the row's prefix and their load; its due time, None without room."""
        memory = self.memory
        tokens = pages * memory.page_size
        window = 0 if self.linker.skips_swa else min(pages, self.window_pages)
        memory.make_room(tokens, window * memory.page_size)
        if not self._has_room(tokens, window * memory.page_size):
            return None
        memory.step = "linker load"
        slots = memory.allocator.full_attn_allocator.alloc(tokens)
        if window:
            peers = memory.allocator.swa_attn_allocator.alloc(window * memory.page_size)
            memory.allocator.set_full_to_swa_mapping(slots[-window * memory.page_size :], peers)
        memory.step = ""
        loaded = slots[:: memory.page_size].cpu().numpy() // memory.page_size
        start = row.held
        row.append(loaded)
        row.allocated = row.committed = row.held * memory.page_size
        row.swa_from = row.committed - window * memory.page_size
        if window or self.cursor_moved:
            row.cursor = row.swa_from
        keys = row.spec.keys[start : row.held]
        row.load_ticket, due_us = self.linker.load(row.spec.rid, keys, loaded, now_us)
        self._loading[row.load_ticket] = row
        self.marks["load_back"] += 1
        self.marks["linker_loaded_without_swa"] += not window
        return due_us

    def _has_room(self, full_tokens: int, swa_tokens: int) -> bool:
        allocator = self.memory.allocator
        if full_tokens > allocator.full_available_size():
            return False
        return swa_tokens <= allocator.swa_available_size()

    def cancel_load(self, row: Row) -> None:
        """The request leaves before its load has ended: the transfer must not complete into pages of others."""
        if row.load_ticket is not None:
            self.linker.cancel(row.load_ticket)
            self._loading.pop(row.load_ticket)
            row.load_ticket = None

    def offload(self, row: Row, inserted: Inserted, now_us: int) -> None:
        """Stores what the cache has just adopted, pinned until the transfer has ended."""
        if self.linker is None or not inserted.adopted:
            return
        lo, hi = inserted.adopted[0][0], inserted.adopted[-1][1]
        if not self.linker.skips_swa:
            swa = np.zeros(hi - lo, dtype=bool)
            swa[max(0, max(row.cursor, row.swa_from) // self.memory.page_size - lo) :] = True
        else:
            swa = None
        ticket = self.linker.offload(
            row.spec.rid, row.spec.keys[lo:hi], inserted.pages[lo:hi], now_us, swa=swa
        )
        if ticket is not None:
            self._pins[ticket] = self.memory.cache.lock(inserted.node, ("offload", ticket))

    def poll(self, now_us: int) -> int:
        """Ends what is due: loads become readable, offloaded pages are unpinned."""
        if self.linker is None:
            return 0
        ended = self.linker.poll(now_us)
        for completion in ended:
            if completion.kind == "load":
                self._loading.pop(completion.ticket).load_ticket = None
            else:
                self.memory.cache.unlock(self._pins.pop(completion.ticket))
                self.marks["offloaded"] += 1
        return len(ended)

    def pins(self) -> int:
        return len(self._pins)
