"""Named faults of a linker's transfers: late, short, failed, lost, cancelled; on some ranks, by number.

A fault names no time and no chance: on its ranks it lets `after` transfers of its direction go well and hits the
next `count`, so the same run hits the same transfers. Each transfer still ends exactly once:

    late       ends well, delay_us later
    short      ends well with half of its pages (rounded down); of one page nothing is left, so that one fails
    failed     ends at its time with nothing moved
    lost       moves nothing and never ends; with delay_us it fails that much later, as by a transport's timeout
    cancelled  is withdrawn before it starts: the next poll says that it failed

A caller that takes a short or failed load for a whole one reads pages that nothing wrote (sgl-project/sglang#38352).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from linker.contract import Completion, TransferKind
from linker.direct import DirectLinker
from linker.store import MemoryStore

KINDS = ("late", "short", "failed", "lost", "cancelled")
DIRECTIONS: tuple[TransferKind, ...] = ("load", "offload")
NEVER_US = 1 << 62


class TransferFault(NamedTuple):
    """What happens to which transfers; made by `transfer_fault`."""

    kind: str  # one of KINDS
    direction: TransferKind | None  # None: loads and offloads, counted together
    ranks: tuple[int, ...] | None  # None: every rank
    after: int
    count: int | None  # None: every later one
    delay_us: int

    def hits(self, number: int) -> bool:
        """Whether the transfer with this number (from 0, of this fault's direction) is hit."""
        return number >= self.after and (self.count is None or number < self.after + self.count)


def transfer_fault(
    kind: str,
    *,
    ranks: Sequence[int] | None = None,
    after: int = 0,
    count: int | None = None,
    delay_ms: float = 0.0,
) -> TransferFault:
    """A fault from its configuration. `kind`: one of KINDS, with -load or -offload for one direction alone.

    Raises ValueError, one line with the cure, for what can't be meant.
    """
    name, _, direction = kind.partition("-")
    if name not in KINDS or (direction and direction not in DIRECTIONS) or kind.endswith("-"):
        raise ValueError(
            f"kind: {kind!r} is no transfer fault; give one of {', '.join(KINDS)}, "
            "with -load or -offload for one direction"
        )
    if ranks is not None and (not ranks or min(ranks) < 0):
        raise ValueError(f"ranks: {list(ranks)} names no rank; give ranks from 0, or leave it out for all")
    if after < 0:
        raise ValueError(f"after: {after} is negative; give how many transfers go well first")
    if count is not None and count < 1:
        raise ValueError(f"count: {count} hits nothing; give 1 or more, or leave it out for every later one")
    delay_us = round(delay_ms * 1000) if math.isfinite(delay_ms) else -1
    if delay_us < 0 or (name == "late" and delay_us == 0):
        raise ValueError(f"delay_ms: {delay_ms:g} delays nothing; give milliseconds above 0")
    if delay_us and name not in ("late", "lost"):
        raise ValueError(f"delay_ms: a {name} transfer has no delay; leave it out, or give kind late or lost")
    where = None if ranks is None else tuple(sorted(set(ranks)))
    return TransferFault(name, direction or None, where, after, count, delay_us)


class FaultSchedule:
    """Which of one rank's transfers are hit. Of several faults that hit one, the first given has it."""

    def __init__(self, faults: Sequence[TransferFault], rank: int) -> None:
        self._faults = [fault for fault in faults if fault.ranks is None or rank in fault.ranks]
        self._seen = dict.fromkeys(DIRECTIONS, 0)
        self.injected = dict.fromkeys(KINDS, 0)  # kind -> transfers hit so far

    def draw(self, direction: TransferKind) -> TransferFault | None:
        """Counts the next transfer; the fault that hits it, None if it goes well."""
        total = sum(self._seen.values())
        chosen = None
        for fault in self._faults:
            number = total if fault.direction is None else self._seen[direction]
            if fault.direction in (None, direction) and fault.hits(number):
                chosen = fault
                self.injected[fault.kind] += 1
                break
        self._seen[direction] += 1
        return chosen


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
