"""Offloads of new nodes to the linker: one transfer and one lock a node, ancestors first.

They end in the order in which they began, also where the store had every page already (sglang `offload_nodes`,
`take_completed_offloads`). A failed offload is forgotten; a later insert sends its pages anew.
"""

from __future__ import annotations

from collections import Counter, deque
from typing import NamedTuple

import numpy as np

from allocator.prefix_audit import nodes_below
from allocator.prefix_node import Lock, PrefixNode
from linker.agreed_linker import AgreedLinker
from linker.contract import Completion
from linker.direct import DirectLinker
from stress.engine.reference.memory import Memory


class Offload(NamedTuple):
    """An offload of a node. `ticket` None: nothing had to be sent. `start`: where the node started."""

    ticket: int | None
    pin: Lock
    start: int


class Offloads:
    """Those of one rank, to the linker that each begins with. Counts into `marks`."""

    def __init__(self, memory: Memory, marks: Counter[str]) -> None:
        self._memory = memory
        self._marks = marks
        self._waiting: deque[Offload] = deque()  # in order of begin
        self._sending: set[int] = set()
        self._unsent: set[int] = set()  # tickets of offloads that failed

    def __len__(self) -> int:
        return len(self._waiting)

    def begin(self, linker: DirectLinker | AgreedLinker, rid: int, end: PrefixNode, now_us: int) -> None:
        """Stores what the path to `end` has that is neither stored nor on its way; each node pinned until it is."""
        chain = []
        while end.parent is not None and not end.backed_up:
            chain.append(end)
            end = end.parent
        for node in reversed(chain):
            swa = None if linker.skips_swa else np.full(len(node.pages), node.swa_live)
            ticket = linker.offload(rid, node.keys, node.pages, now_us, swa=swa)
            if ticket is not None:
                self._sending.add(ticket)
            node.backed_up = True
            holder = "offload" if ticket is not None else "stored"
            pin = self._memory.cache.lock(node, (holder, node.node_id))
            self._waiting.append(Offload(ticket, pin, node.start))

    def sent(self, completion: Completion) -> None:
        """A transfer is over; the node stays pinned until those before it have ended."""
        self._sending.discard(completion.ticket)
        if not completion.ok:
            self._unsent.add(completion.ticket)

    def has_sent(self) -> bool:
        """The oldest could end now."""
        return bool(self._waiting) and self._waiting[0].ticket not in self._sending

    def end_sent(self) -> None:
        """Ends the oldest ones as far as they have been sent: their nodes are unpinned."""
        while self.has_sent():
            self._end(self._waiting.popleft())

    def _end(self, offload: Offload) -> None:
        self._memory.cache.unlock(offload.pin)
        if offload.ticket not in self._unsent:
            self._marks["offloaded"] += offload.ticket is not None
            return
        self._unsent.discard(offload.ticket)
        self._marks["offload_failed"] += 1
        # What is below can't be restored without it, and asks for it again when it is next inserted.
        node = offload.pin.node
        for below in nodes_below(node):
            below.backed_up = False
        while node.start >= offload.start and node.parent is not None:
            node.backed_up = False
            node = node.parent
