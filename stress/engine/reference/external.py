"""The linker's side of the reference engine: what can be restored, loads into rows, offloads of new nodes.

A load's slots are private to the request until its first checkpoint inserts them (upstream since 0.5.22). With
a linker that skips SWA they have no peers; otherwise the pages of the window get SWA pages and the cursor stands
at their start. Offloads are stress.engine.reference.offloads.
A load that fails or comes short leaves pages that nobody may read: whose rows name them is asked by `take_unread`, and
the tree, where it had them already, hides them.
"""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

import numpy as np
import torch

from allocator.prefix_node import Lock, PrefixNode
from linker.agreed_linker import AgreedLinker, Told
from linker.contract import Completion
from linker.direct import DirectLinker
from stress.engine.reference.habits import Habits
from stress.engine.reference.memory import Memory
from stress.engine.reference.offloads import Offloads
from stress.engine.reference.publish import insert
from stress.engine.reference.row import NO_PAGES, Row

Store = DirectLinker | AgreedLinker | Told


class Load(NamedTuple):
    """A load under way: into `pages` of the row, int64[n], which start at its page `start`."""

    row: Row
    start: int
    pages: np.ndarray


class External:
    """`linker` None: there is no external store, nothing is ever restored or stored."""

    def __init__(self, memory: Memory, linker: DirectLinker | AgreedLinker | None, habits: Habits) -> None:
        self.memory = memory
        self.linker = linker
        self.habits = habits
        self.marks: Counter[str] = Counter()
        self._loading: dict[int, Load] = {}
        self._queued: set[int] = set()
        self._load_pins: dict[int, Lock] = {}
        self._offloads = Offloads(memory, self.marks)
        self._unread: list[np.ndarray] = []  # pages that a load should have filled and did not

    @property
    def window_pages(self) -> int:
        return self.memory.pages_for(self.memory.window_tokens)

    def restorable(self, keys: np.ndarray, local_pages: int) -> int:
        """How many pages after the local hit can be restored so that the window behind them is whole."""
        if self.linker is None or local_pages >= len(keys):
            return 0
        return self.longest(self.linker, keys, local_pages)

    def longest(self, store: Store, keys: np.ndarray, local_pages: int) -> int:
        """`restorable` by one store: the linker, or what one member of a group has told of its own."""
        pages = store.lookup(keys[local_pages:])
        asks_swa = self.memory.paged_swa and self.habits.asks_swa_where_paged
        if not pages or (self.linker.skips_swa and not asks_swa):
            return pages
        # The window of a restored prefix is restored as far as it lies behind the local hit, which has its own.
        stored = store.swa_stored(keys[local_pages : local_pages + pages])
        while pages and not stored[max(0, pages - self.window_pages) : pages].all():
            pages -= 1
        return pages

    def load_back(self, row: Row, pages: int, now_us: int) -> int | None:
        """Slots for `pages` pages behind the row's prefix and their load; its due time, None without room."""
        memory, linker = self.memory, self.linker
        window = 0 if linker.skips_swa else min(pages, self.window_pages)
        slots = self._slots_for_load(pages, window)
        if slots is None:
            return None
        loaded = slots[:: memory.page_size].cpu().numpy() // memory.page_size
        start = row.held
        row.append(loaded)
        row.allocated = row.committed = row.held * memory.page_size
        row.swa_from = row.committed - window * memory.page_size
        if window or self.habits.cursor_moved:
            row.cursor = row.swa_from
        if row.branch is not None and row.branch <= row.committed:
            row.branch = None
        keys = row.keys[start : row.held]
        row.load_ticket, due_us = linker.load(row.spec.rid, keys, loaded, now_us)
        self._loading[row.load_ticket] = Load(row, start, loaded)
        self._queued.add(row.load_ticket)
        if self.habits.inserts_loads_at_once:
            self._insert_load(row, start)
        self.marks["load_back"] += 1
        self.marks["linker_loaded_without_swa"] += not window
        return due_us

    def _slots_for_load(self, pages: int, window: int) -> torch.Tensor | None:
        """FULL slots of `pages` pages, the last `window` of them with peers; None, and nothing taken, without room.

        FULL is evicted and taken before SWA is asked, and what was evicted stays so (sglang
        `build_external_linker_transfer`).
        """
        memory, page_size = self.memory, self.memory.page_size
        full, swa = memory.allocator.full_attn_allocator, memory.allocator.swa_attn_allocator
        memory.make_room(pages * page_size, 0)
        memory.step = "linker load"
        slots = full.alloc(pages * page_size)
        if slots is not None and window:
            memory.make_room(0, window * page_size)
            peers = swa.alloc(window * page_size)
            if peers is None:
                full.free(slots)
                slots = None
            else:
                memory.allocator.set_full_to_swa_mapping(slots[-window * page_size :], peers)
        memory.step = ""
        return slots

    def _insert_load(self, row: Row, start: int) -> None:
        node = insert(self.memory, row, row.held, finished=False)
        self._load_pins[row.load_ticket] = self.memory.cache.lock(node, ("load", row.load_ticket))
        while node.start >= start and node.parent is not None:
            node.backed_up = True
            node = node.parent

    def match_again(self, row: Row) -> None:
        """The row's prefix is matched as a newcomer would, and what is hit is what the row holds of the tree."""
        memory = self.memory
        match = memory.cache.match(row.keys[: row.protected // memory.page_size])
        receipt = memory.cache.lock(match.node, row.spec.rid)
        memory.cache.unlock(row.receipt)
        row.receipt, row.protected = receipt, match.node.end * memory.page_size

    def is_queued(self, row: Row) -> bool:
        """The row's load has not started: its batch is not formed yet."""
        return row.load_ticket is not None and row.load_ticket in self._queued

    def cancel_load(self, row: Row) -> None:
        """The request leaves before its load has ended: the transfer must not complete into pages of others."""
        ticket, row.load_ticket = row.load_ticket, None
        if ticket is None:
            return
        pinned = ticket in self._load_pins
        if pinned and ticket not in self._queued:
            return  # the tree holds the pages until the load has landed
        self.linker.cancel(ticket)
        load = self._loading.pop(ticket)
        self._queued.discard(ticket)
        if pinned:
            pin = self._load_pins.pop(ticket)
            self.memory.cache.unlock(pin)
            if not self.habits.keeps_cancelled_loads:
                self.memory.cache.hide(pin.node, load.start)

    def start_loads(self) -> None:
        """The batch is formed: what was queued for it is under way and can't be taken back any more."""
        self._queued.clear()

    def offload(self, rid: int, end: PrefixNode, now_us: int) -> None:
        """Stores what the path to `end` has that is neither stored nor on its way; each node pinned until it is."""
        if self.linker is not None:
            self._offloads.begin(self.linker, rid, end, now_us)

    def poll(self, now_us: int) -> int:
        """Ends what is due: loads become readable, offloaded nodes are unpinned."""
        if self.linker is None:
            return 0
        ended = self.linker.poll(now_us)
        for completion in ended:
            if completion.kind == "load":
                self._load_ended(completion)
            else:
                self._offloads.sent(completion)
        self._offloads.end_sent()
        return len(ended)

    def _load_ended(self, completion: Completion) -> None:
        load = self._loading.pop(completion.ticket)
        load.row.load_ticket = None
        pin = self._load_pins.pop(completion.ticket, None)
        if pin is not None:
            self.memory.cache.unlock(pin)
        valid = self.valid_pages(completion)
        if valid == len(load.pages):
            return
        self.marks["load_failed"] += 1
        self._unread.append(load.pages[valid:])
        if pin is not None:
            self.memory.cache.hide(pin.node, load.start + valid)

    def valid_pages(self, completion: Completion) -> int:
        """How many of a load's pages, from its first on, hold what they should."""
        return completion.pages if completion.ok else 0

    def take_unread(self) -> np.ndarray:
        """Pages that a load should have filled and did not, int64[], since this was last asked."""
        unread, self._unread = self._unread, []
        return np.concatenate(unread) if unread else NO_PAGES

    def pending_us(self, now_us: int) -> int | None:
        """When the next poll would end something; None: nothing is under way."""
        if self.linker is None:
            return None
        if self._offloads.has_sent():
            return now_us
        return self.linker.next_due_us()

    def loads_of(self, rid: int) -> int:
        """Loads on their way into pages of the request's row; not those whose pages the tree holds by now."""
        return sum(
            load.row.spec.rid == rid and ticket not in self._load_pins
            for ticket, load in self._loading.items()
        )

    def pins(self) -> int:
        return len(self._offloads) + len(self._load_pins)
