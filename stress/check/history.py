"""The life of a page in words: the first time it was lent and what happened to it last, oldest line first.

Owns a bounded journal of the events that move pages, so that a soak's memory stays flat; who was lent a page last is
kept in the shadow for ever. The history of a page without an owner of its own, padding or an entry that reads no
peer, is that of the source page whose entry was read: that page's request is the one to look at.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import numpy as np

from stress.check.event import Cause, Event, EventKind, with_arrays
from stress.check.state import Shadow

JOURNAL_EVENTS = 100_000
HISTORY_LINES = 20
_TRANSFERS = frozenset({EventKind.TRANSFER_BEGIN, EventKind.TRANSFER_END})
_COUNTED = frozenset({EventKind.REF, EventKind.UNREF})
_PROMISES = {EventKind.PROMISED: "is to be written", EventKind.WITHDRAWN: "will not be written"}
JOURNALLED = (
    frozenset({EventKind.LEND, EventKind.RETURN, EventKind.INTENT, EventKind.BIND})
    | _TRANSFERS
    | _COUNTED
    | _PROMISES.keys()
)

# A request's own operations say enough by their name; in the others the step tells whose pages they were.
_OWN_KINDS = frozenset({"checkpoint", "finish", "abort", "retract"})


def blame(cause: Cause) -> str:
    """`checkpoint of request 4`, or `extend of request 4, cache eviction`, or `results_end`."""
    who = f"{cause.kind} of request {cause.rid}" if cause.rid >= 0 else cause.kind
    return f"{who}, {cause.step}" if cause.step and cause.kind not in _OWN_KINDS else who


class History:
    """Journal of one rank."""

    def __init__(self, shadow: Shadow, events: int = JOURNAL_EVENTS):
        self._shadow = shadow
        self._journal: deque[Event] = deque(maxlen=events)
        # record(event): keeps an event of a kind in JOURNALLED.
        self.record: Callable[[Event], None] = self._journal.append
        shadow.last_unmap = self.last_unmap

    def last_unmap(self, pool: str, page: int) -> Event | None:
        """The last event that took the peer in `pool` from a source page, as far as the journal goes."""
        no_peer = self._shadow.edge_into[pool].no_peer
        for event in map(with_arrays, reversed(self._journal)):
            if event.pool != pool or event.peers is None or not (event.pages == page).any():
                continue
            if event.kind is EventKind.INTENT or event.peers[event.pages == page][0] == no_peer:
                return event
        return None

    def reader_of(self, pool: str, page: int) -> tuple[str, int] | None:
        """For padding: the first source page (pool, page) whose entry was read as it; None: not padding, or none."""
        edge = self._shadow.edge_into.get(pool)
        if edge is None or page != edge.target.null:
            return None
        for event in map(with_arrays, self._journal):
            if event.pool == pool and event.kind is EventKind.INTENT and event.peers is not None:
                at = np.flatnonzero(event.peers == edge.no_peer)
                if len(at):
                    return edge.shape.source, int(event.pages[at[0]])
        return None

    def lines(self, pool: str, page: int, also_pool: str = "", also_page: int = -1) -> list[str]:
        """Up to HISTORY_LINES lines about a page, with what happened since to a second one (the null page)."""
        sources = {edge.shape.target: edge.shape.source for edge in self._shadow.edges}
        found: list[str] = []
        for event in map(with_arrays, self._journal):
            line = self._line(event, pool, page, sources)
            if line is None and found and event.pool == also_pool and event.peers is None:
                line = self._line(event, also_pool, also_page, sources)
            if line is not None:
                found.append(line)
        if not found:
            return self._last_lend(pool, page)
        if len(found) <= HISTORY_LINES:
            return found
        left_out = len(found) - HISTORY_LINES + 1
        return [found[0], f"... {left_out} lines left out ...", *found[2 - HISTORY_LINES :]]

    def _line(self, event: Event, pool: str, page: int, sources: dict[str, str]) -> str | None:
        cause = event.cause
        if event.kind in _TRANSFERS:
            return self._transfer_line(event, pool, page)
        if event.kind in _COUNTED:
            return self._counted_line(event, pool, page)
        if event.peers is None:
            if event.pool != pool or not (event.pages == page).any():
                return None
            if event.kind in _PROMISES:
                return f"{cause.operation} {pool} page {page} {_PROMISES[event.kind]} ({blame(cause)})"
            if event.kind is EventKind.LEND:
                owner = cause.rid if cause.rid >= 0 else self._owner(event, page)
                to = f" to request {owner}" if owner >= 0 else ""
                return f"{cause.operation} lent {pool} page {page}{to} ({cause.step or cause.kind or 'no operation'})"
            if event.kind is EventKind.RETURN:
                return f"{cause.operation} returned {pool} page {page} ({blame(cause)})"
            return f"{cause.operation} {event.method} asked {pool} page {page} back ({blame(cause)})"
        source = sources[event.pool]
        if source == pool:
            at = np.flatnonzero(event.pages == page)
        elif event.pool == pool:
            at = np.flatnonzero(event.peers == page)
        else:
            return None
        if not len(at):
            return None
        return self._edge_line(event, source, int(event.pages[at[0]]), int(event.peers[at[0]]))

    def _counted_line(self, event: Event, pool: str, page: int) -> str | None:
        times = np.count_nonzero(event.pages == page) if event.pool == pool else 0
        if not times:
            return None
        what = "took" if event.kind is EventKind.REF else "gave up"
        count = "a reference" if times == 1 else f"{times} references"
        return f"{event.cause.operation} {event.method} {what} {count} to {pool} page {page} ({blame(event.cause)})"

    def _transfer_line(self, event: Event, pool: str, page: int) -> str | None:
        """What ended without the page is not told of it."""
        if event.pool != pool or pool in self._shadow.edge_into or not (event.pages == page).any():
            return None
        what = f"{event.method} {event.token} began"
        if event.kind is EventKind.TRANSFER_END:
            what = f"transfer {event.token} was {event.method}"
        return f"{event.cause.operation} {what} with {pool} page {page} ({blame(event.cause)})"

    def _edge_line(self, event: Event, source: str, page: int, peer: int) -> str | None:
        cause = event.cause
        number, why = cause.operation, blame(cause)
        mapped = peer != self._shadow.edge_into[event.pool].no_peer
        if event.kind is EventKind.BIND:
            return (
                f"{number} mapped {source} page {page} to {event.pool} page {peer} ({why})"
                if mapped
                else None
            )
        if mapped:
            why = f"{why}, {cause.step}" if cause.step and cause.kind in _OWN_KINDS else why
            return f"{number} {event.method} read {event.pool} page {peer} at {source} page {page} ({why})"
        return f"{number} {event.method} read no peer ({why})"

    def _owner(self, event: Event, page: int) -> int:
        """Who got a page from an operation for several requests: known from the tables, if it was the last lend."""
        shadow = self._shadow
        lent_by = shadow.pools[event.pool].lent_by
        if not 0 <= page < len(lent_by) or shadow.causes[lent_by[page]] != event.cause:
            return -1
        return shadow_owner(shadow, event.pool, page)

    def _last_lend(self, pool: str, page: int) -> list[str]:
        shadow = self._shadow
        state = shadow.pools[pool]
        if not 0 <= page < len(state.lent_by) or state.lent_by[page] == 0:
            return []
        cause = shadow.causes[state.lent_by[page]]
        owner = shadow_owner(shadow, pool, page)
        to = f" to request {owner}" if owner >= 0 else ""
        return [f"{cause.operation} lent {pool} page {page}{to} ({cause.step or cause.kind})"]


def shadow_owner(shadow: Shadow, pool: str, page: int) -> int:
    """The request that a page was lent to last, by the shadow or through the page that maps to it; -1: unknown."""
    owner = int(shadow.pools[pool].owner[page])
    edge = shadow.edge_into.get(pool)
    if owner < 0 and edge is not None and edge.holder[page] >= 0:
        owner = int(edge.source.owner[edge.holder[page]])
    return owner
