"""The direct linker with named faults: each transfer that is queued is counted, and some are hit (linker.faults).

A hit transfer keeps its pages and counts as in flight until it ends, as any other; a failed one ends with ok False
and no page and stores nothing, so its pages may be sent again.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from linker.contract import Completion, TransferKind
from linker.direct import DirectLinker
from linker.faults import FaultSchedule, TransferFault
from linker.store import MemoryStore

NEVER_US = 1 << 62


class FaultyLinker(DirectLinker):
    """A DirectLinker of one rank with faults. Raises ValueError as DirectLinker does."""

    def __init__(
        self,
        store: MemoryStore,
        *,
        faults: Sequence[TransferFault],
        rank: int,
        skips_swa: bool,
        delay_us: int,
        pages_per_ms: int | None = None,
    ) -> None:
        super().__init__(store, skips_swa=skips_swa, delay_us=delay_us, pages_per_ms=pages_per_ms)
        self.schedule = FaultSchedule(faults, rank)
        self._failing: dict[int, int] = {}  # ticket -> when it fails
        self._short: dict[int, int] = {}  # ticket of a load -> pages that arrive

    def cancel(self, ticket: int) -> bool:
        """As DirectLinker.cancel, also for a transfer that a fault has hit."""
        self._failing.pop(ticket, None)
        self._short.pop(ticket, None)
        return super().cancel(ticket)

    def poll(self, now_us: int) -> list[Completion]:
        """As DirectLinker.poll; a transfer that fails is in it with ok False and no page, and stores nothing."""
        failed = [ticket for ticket, due_us in self._failing.items() if due_us <= now_us]
        ended = [self._fail(ticket) for ticket in failed]
        for completion in super().poll(now_us):
            pages = self._short.pop(completion.ticket, completion.pages)
            ended.append(completion._replace(pages=pages))
        return sorted(ended, key=lambda completion: (completion.due_us, completion.ticket))

    def next_due_us(self) -> int | None:
        """As DirectLinker.next_due_us; what is lost for good is never due."""
        inner_us = super().next_due_us()
        due_us = min(NEVER_US if inner_us is None else inner_us, *self._failing.values(), NEVER_US)
        return None if due_us >= NEVER_US else due_us

    def _fail(self, ticket: int) -> Completion:
        transfer, due_us = self._transfers[ticket], self._failing.pop(ticket)
        self._end(ticket, transfer)
        return Completion(ticket, transfer.kind, transfer.owner, 0, False, due_us)

    def _queue(
        self,
        kind: TransferKind,
        owner: int,
        keys: np.ndarray,
        pages: np.ndarray,
        swa: np.ndarray | None,
        now_us: int,
    ) -> int:
        fault = self.schedule.draw(kind)
        if fault is None:
            return super()._queue(kind, owner, keys, pages, swa, now_us)
        if fault.kind == "late":
            return super()._queue(kind, owner, keys, pages, swa, now_us + fault.delay_us)
        half = len(keys) // 2
        if fault.kind == "short" and kind == "offload" and half:
            self._on_their_way.difference_update(keys[half:].tolist())  # the rest may be sent again
            part = None if swa is None else swa[:half]
            return super()._queue(kind, owner, keys[:half], pages[:half], part, now_us)
        start_us = now_us
        if fault.kind == "lost":
            start_us = now_us + fault.delay_us if fault.delay_us else NEVER_US
        ticket = super()._queue(kind, owner, keys, pages, swa, start_us)
        if fault.kind == "short" and half:
            self._short[ticket] = half
        else:
            due_us = self._transfers[ticket].due_us
            self._failing[ticket] = now_us if fault.kind == "cancelled" else due_us
        return ticket
