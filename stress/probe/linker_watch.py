"""Wraps a linker's methods, by name and on the instance, and tells the ledger which transfers begin and end.

What a transfer moves and how it ended is read off the calls themselves (`linker.contract.Linker`), never off the
engine's own record of them: an engine that loses a ticket, or lets go of a page too early, is seen. A load of a linker
that moves SWA too is told with all its pages, since which of them get their SWA part is the caller's choice: those that
have a peer. Costs a few numpy operations a transfer; of offloads one in `closely` may be told, of loads each one is,
for they say what is in a page.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from stress.check.event import EventKind
from stress.probe.allocator_watch import Watch

_NONE = np.empty(0, dtype=np.int64)


class Moved(NamedTuple):
    """What a transfer moves, "load" or "offload", and for whom: pages of the first pool and their keys, int64[n]."""

    kind: str
    owner: int
    keys: np.ndarray
    pages: np.ndarray


_UNKNOWN = Moved("", -1, _NONE, _NONE)


class LinkerWatch:
    """Watches `linker` under the operations of `watch`, whose first pool its pages are of."""

    def __init__(self, linker, watch: Watch, closely: int = 1) -> None:
        self._linker = linker
        self._watch = watch
        self._closely = closely
        self._passed_over: set[int] = set()  # tickets of offloads on their way that are not told
        self._open: dict[int, Moved] = {}  # by ticket
        # Is told what a transfer that has ended has moved.
        self.on_ended: Callable[[Moved], None] | None = None
        self._inner = {name: getattr(linker, name) for name in ("load", "offload", "cancel", "poll")}
        for name in self._inner:
            setattr(linker, name, getattr(self, f"_{name}"))

    def unwatch(self) -> None:
        """Takes the wrappers off; the linker is as it was."""
        for name in self._inner:
            delattr(self._linker, name)

    def _load(self, owner: int, keys: np.ndarray, pages: np.ndarray, now_us: int) -> tuple[int, int]:
        ticket, due_us = self._inner["load"](owner, keys, pages, now_us)
        moves_swa = not self._linker.skips_swa
        self._began("load", ticket, owner, keys, pages, pages if moves_swa else None)
        return ticket, due_us

    def _offload(
        self, owner: int, keys: np.ndarray, pages: np.ndarray, now_us: int, swa: np.ndarray | None = None
    ) -> int | None:
        ticket = self._inner["offload"](owner, keys, pages, now_us, swa=swa)
        if ticket is not None and ticket % self._closely:
            self._passed_over.add(ticket)
        elif ticket is not None:
            sent = self._linker.pages_of(ticket)
            if not np.array_equal(pages, sent):
                of_these = np.isin(pages, sent)
                keys, pages, swa = keys[of_these], pages[of_these], None if swa is None else swa[of_these]
            with_swa = None if swa is None else pages[swa]
            self._began("offload", ticket, owner, keys, pages, with_swa)
        return ticket

    def _cancel(self, ticket: int) -> bool:
        cancelled = self._inner["cancel"](ticket)
        if cancelled and not self._passes_over(ticket):
            self._enter()
            self._ended(ticket, 0, "cancelled")
        return cancelled

    def _poll(self, now_us: int) -> list:
        completions = self._inner["poll"](now_us)
        if completions:
            self._enter()
        for completion in completions:
            if self._passes_over(completion.ticket):
                continue
            valid = completion.pages if completion.ok else 0
            self._ended(completion.ticket, valid, "done" if completion.ok else "failed")
        return completions

    def _passes_over(self, ticket: int) -> bool:
        """Whether this is the end of an offload that was not told; a second end of it is told."""
        if ticket not in self._passed_over:
            return False
        self._passed_over.discard(ticket)
        return True

    def _began(self, kind: str, ticket: int, owner: int, keys, pages, with_swa) -> None:
        pages = np.array(pages, dtype=np.int64)
        self._open[ticket] = Moved(kind, owner, np.array(keys), pages)
        self._enter()
        pool, edge = self._watch.source.name, self._watch.edge
        self._tell(EventKind.TRANSFER_BEGIN, owner, pool, pages, np.array(keys), kind, ticket)
        if with_swa is not None and len(with_swa) and edge is not None:
            part = np.array(with_swa, dtype=np.int64)
            self._tell(EventKind.TRANSFER_BEGIN, owner, edge.target, part, None, kind, ticket)

    def _ended(self, ticket: int, valid: int, how: str) -> None:
        begun = self._open.pop(ticket, _UNKNOWN)
        moved = begun._replace(keys=begun.keys[:valid], pages=begun.pages[:valid])
        pool = self._watch.source.name
        self._tell(EventKind.TRANSFER_END, moved.owner, pool, moved.pages, None, how, ticket)
        if self.on_ended is not None and len(moved.pages):
            self.on_ended(moved)

    def _enter(self) -> None:
        self._watch.call += 1
        self._watch.take_cause()

    def _tell(self, kind, owner: int, pool: str, pages, peers, method: str, ticket: int) -> None:
        watch = self._watch
        cause = watch.cause
        watch.cause = cause.of(owner)
        watch.tell(kind, pool, pages, peers, method, token=ticket)
        watch.cause = cause
