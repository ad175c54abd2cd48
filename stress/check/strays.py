"""Ids that a pool does not have: lent by a target that counts wrong, and named again by much of what follows.

I1 reports them where they are lent. What comes later about such a page is left out of its event, so that the rules,
whose arrays have no place for it, go on with the pages that there are. An id that nobody was lent is no stray.
"""

from __future__ import annotations

from msgspec.structs import replace

from stress.check.event import Event, EventKind
from stress.check.state import Shadow

# Events that name source pages, or slots of them, which the rules look up as they are.
BY_SOURCE = frozenset(
    {EventKind.INTENT, EventKind.BIND, EventKind.MAP, EventKind.SLOTS, EventKind.READ}
    | {EventKind.LIVE, EventKind.LOCK, EventKind.UNLOCK}
)


def without_strays(event: Event, shadow: Shadow) -> Event:
    """An event of BY_SOURCE without the ids that its source pool's arrays have no place for."""
    if event.kind is EventKind.INTENT and event.peers is None:
        return event  # PoolShadow.look sorts these
    edge = shadow.edge_into.get(event.pool)
    source = shadow.pools[event.pool] if edge is None else edge.source
    pages = event.pages // source.shape.page_size if event.kind is EventKind.SLOTS else event.pages
    there = (pages >= 0) & (pages < len(source.on_loan))
    if there.all():
        return event
    if event.kind is EventKind.READ:
        there[:] = False  # its pages stand in the order of the request's table
    return replace(event, pages=event.pages[there], peers=None if event.peers is None else event.peers[there])
