"""Tells events to the ledger under the operation that caused them, at once or when their ids have landed.

On a CPU the ledger sees an event as it happens, or, where `lands_late`, some operations later: what one event after
the other takes stays in the processor's caches then. On a GPU an event waits for the copies of its ids in any case.
What waits is shown in the same order, under its own operation, by `land`: nothing is judged under a later one's name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

import numpy as np

from stress.check.all_counts import AllCounts
from stress.check.event import Cause, Event, EventKind
from stress.check.shadow import Ledger
from stress.ending import ENDING
from stress.probe.capture import Column, DeviceReader, HostReader

# Events after which counts may be others, or another request's.
_MOVES = frozenset(
    {EventKind.LEND, EventKind.RETURN, EventKind.INTENT, EventKind.HOLD, EventKind.REF, EventKind.UNREF}
)
_PAIRED = frozenset({EventKind.INTENT, EventKind.BIND, EventKind.MAP})


class HasStep(Protocol):
    """An engine, as far as this module needs it."""

    step: str


class NoEngine:
    """Whoever works without an engine."""

    step = ""


class Journal:
    """`operation` is who asks at the moment; `engine.step` its word for the part of it that is going on."""

    def __init__(self, ledger: Ledger, reader: HostReader | DeviceReader):
        self.ledger = ledger
        self.reader = reader
        self._waits = reader.waits
        self.lands_late = reader.waits
        self.now_us = 0
        self.operation = self.cause = Cause(0, "", -1, "")
        self._step = ""  # of the present cause
        self.engine: HasStep = NoEngine
        self.closely = 1  # of a mapping: after one operation in so many its entries are read again
        self.on_lend: Callable[[str, Column], None] | None = None  # is told a pool and its pages that are new
        self.call = 0
        self.events = 0
        self.moved = False  # pages have changed hands since the counts were told last
        self.source_lent = False  # pages of the first pool were lent in this operation
        self.raised = False  # an exception of the target passed through in this operation
        self._told_before = 0  # events that waited when the operation began
        self._cut_short = False
        self._whole = True  # what the ledger has seen is whole operations
        self.waiting: list = []  # of Event and AllCounts; on a GPU some with the size of a page beside them

    def begin(self, operation: Cause, at_us: int) -> None:
        """A new operation starts; its calls count from 1."""
        self.operation = self.cause = operation
        self._step = operation.step
        self.now_us = at_us
        self.call = 0
        self.source_lent = self.raised = False
        self._told_before = len(self.waiting)

    def drop(self, *, everything: bool) -> None:
        """The operation at hand is cut short: what it has told is dropped. Amid a check `everything` that waits is, and
        nothing is settled any more."""
        self._whole = self.lands_late and not everything
        del self.waiting[0 if everything else self._told_before :]
        self._cut_short = True

    def settle(self, operation: int, at_us: int) -> None:
        """What waits is checked, and what must hold once this operation is over, or the last one not dropped."""
        amid, ENDING.amid = ENDING.amid, False  # a check is not cut short
        if self.lands_late:
            self.land()
        if not self._cut_short:
            self.ledger.settle(operation, at_us)
        elif self._whole:
            self.ledger.settle_latest()
        ENDING.amid = amid

    @contextmanager
    def about(self, rid: int) -> Iterator[None]:
        """What is told meanwhile is about this request, in an operation about several."""
        operation, cause = self.operation, self.cause
        self.operation, self.cause = operation.of(rid), cause.of(rid)
        try:
            yield
        finally:
            self.operation, self.cause, self._step = operation, cause, cause.step

    def tell(
        self,
        kind: EventKind,
        pool: str,
        pages: Column,
        peers: Column | None,
        method: str,
        slots_of: int = 0,
        token: int = -1,
        table: str = "",
    ) -> None:
        """Journals an event under the present cause; where nothing lands late the ledger sees it now.

        `slots_of`: `pages` are slots of pages of that size, yet to be reduced to those pages whose first slot is
        among them, because that takes a look at the ids. Only where the reader waits.
        """
        self.events += 1
        if kind in _MOVES:
            self.moved = True
        if self._waits:
            send = self.reader.send
            pages, peers = send(pages), None if peers is None else send(peers)
        event = Event(kind, pool, pages, peers, self.cause, self.call, method, self.now_us, token, table)
        if self.lands_late:
            self.waiting.append((event, slots_of) if slots_of else event)
        else:
            self.ledger.observe(event)

    def tell_counts(self, counts: AllCounts, *, raised: bool) -> None:
        """As `tell`. Of an operation that raised they are events in any case."""
        told = counts.events("raised") if raised else (counts,)
        if self.lands_late:
            self.waiting.extend(told)
        else:
            for one in told:
                self.ledger.observe(one)

    def land(self) -> None:
        """Shows the ledger what waits. On a GPU the caller has synchronised the stream."""
        waiting, self.waiting = self.waiting, []
        self.ledger.observe_all([self._landed(event) for event in waiting] if self._waits else waiting)

    def _landed(self, event: Event | AllCounts | tuple[Event, int]) -> Event | AllCounts:
        """With its ids on the host, as pages, one entry a page."""
        slots_of = 0
        if type(event) is tuple:
            event, slots_of = event
        if type(event) is AllCounts or type(event.pages) is list:
            return event  # host numbers
        land = self.reader.land
        pages, peers = land(event.pages), None if event.peers is None else land(event.peers)
        if slots_of:
            starts = np.flatnonzero(pages % slots_of == 0)
            pages, peers = pages[starts] // slots_of, peers[starts]
        if event.kind in _PAIRED:
            pages, peers = _first_of_each(pages, peers)
        event.pages, event.peers = pages, peers
        return event

    def take_cause(self) -> None:
        """The cause of what follows: the operation, and the engine's present word for the step."""
        step = self.engine.step
        if self._step != step:
            self._step = step
            cause = self.operation
            self.cause = Cause(cause.operation, cause.kind, cause.rid, step)


def _first_of_each(pages: np.ndarray, peers: np.ndarray | None) -> tuple[np.ndarray, np.ndarray | None]:
    """A set that was copied slot by slot, one entry a page."""
    first = np.sort(np.unique(pages, return_index=True)[1])
    return pages[first], None if peers is None else peers[first]
