"""Proofs for events of a few pages, by plain integers: about 0.2 us a page, where one numpy call costs 1 us.

Each method first looks at every page and changes nothing, then lets the other rules look, then takes the event in.
"""

from __future__ import annotations

import numpy as np

from stress.check.event import Event
from stress.check.proof import Check, Consult, PoolCells
from stress.check.state import Shadow

_SINGLE = 3  # pages that are looked up in a table one by one


class Few:
    """`pages` and `peers` of an event are lists here."""

    def __init__(self, shadow: Shadow, cells: dict[str, PoolCells], consult: Consult):
        self._shadow, self._cells, self._consult = shadow, cells, consult

    def lend(self, event: Event, others: list[Check]) -> bool:
        """In range, free, each once, under no transfer."""
        if event.token >= 0:
            return False  # what is in the pages stays: that is not taken in here
        cells, pages, cause = self._cells[event.pool], event.pages, event.cause
        first, end, on_loan, busy = cells.first, cells.end, cells.on_loan, cells.busy
        for page in pages:
            if not first <= page < end or on_loan[page] or busy[page]:
                return False
        if len(pages) > 1 and len(set(pages)) < len(pages):
            return False
        if others:
            self._consult(event, others)
        rid, index = cause.rid, self._shadow.causes.number(cause)
        owner, lent_by = cells.owner, cells.lent_by
        for page in pages:
            on_loan[page] = True
            owner[page] = rid
            lent_by[page] = index
        cells.pool.lent += len(pages)
        cells.pool.lends += len(pages)
        return True

    def ask(self, event: Event, others: list[Check]) -> bool:
        """Asked back for the first time, on loan, each once; in no table but that of the request that may."""
        if event.peers is not None:
            return self._ask_through(event, others)
        cells, pages = self._cells[event.pool], event.pages
        first, end, on_loan, asked, tables = cells.first, cells.end, cells.on_loan, cells.asked, cells.tables
        named = False
        for page in pages:
            if not first <= page < end or asked[page] or not on_loan[page]:
                return False
            named = named or tables[page]
        if len(pages) > 1 and len(set(pages)) < len(pages):
            return False
        if named and not self._may_give_up(cells, event):
            return False
        if self._shadow.locks.held and cells.inward is None:
            locks = self._shadow.locks.cells_in(event.pool)
            for page in pages:
                if locks[page]:
                    return False
        if others:
            self._consult(event, others)
        for page in pages:
            asked[page] = True
        pool = cells.pool
        pool.asked_pages += len(pages)
        pool.asking.append(event)
        return True

    def _may_give_up(self, cells: PoolCells, event: Event) -> bool:
        """No table names the pages but the one of the operation's own request."""
        tables, shadow = cells.tables, self._shadow
        named = [page for page in event.pages if tables[page]]
        if len(named) <= _SINGLE:
            own = shadow.table_of_cause(event.cause)
            return all(tables[page] == 1 and np.count_nonzero(own == page) for page in named)
        marked, operation = shadow.may_give_up(cells.pool, event.cause), event.cause.operation
        return all(tables[page] == 1 and marked.item(page) == operation for page in named)

    def _ask_through(self, event: Event, others: list[Check]) -> bool:
        """The entries read are the shadow's, and the peers are held by these source pages alone."""
        target = self._cells[event.pool]
        edge = target.inward
        source, peer, holder, no_peer = edge.source, edge.peer, edge.holder, edge.no_peer
        first, end, on_loan, asked = source.first, source.end, target.on_loan, target.asked
        locks, mapped = self._shadow.locks.cells_in(event.pool), 0
        pages, peers = event.pages, event.peers
        for at, page in enumerate(pages):
            entry = peers[at]
            if not first <= page < end or peer[page] != entry:
                return False
            if entry != no_peer:
                if holder[entry] != page or asked[entry] or not on_loan[entry] or locks[page]:
                    return False
                mapped += 1
        if len(pages) > 1 and len(set(pages)) < len(pages):
            return False
        if others:
            self._consult(event, others)
        pool = target.pool
        pool.asking.append(event)
        if mapped:
            for at, page in enumerate(pages):
                entry = peers[at]
                if entry != no_peer:
                    peer[page] = no_peer
                    holder[entry] = -1
                    asked[entry] = True
            edge.edge.mapped -= mapped
            pool.asked_pages += mapped
        return True

    def come(self, event: Event, others: list[Check]) -> bool:
        """On loan, asked back, each once, under no transfer; nothing maps to them, and they map to nothing."""
        cells, pages = self._cells[event.pool], event.pages
        pool = cells.pool
        if pool.orphans:
            return False
        first, end, on_loan, asked, tables = cells.first, cells.end, cells.on_loan, cells.asked, cells.tables
        busy, holder, peer, no_peer = cells.busy, cells.holder, cells.peer, cells.no_peer
        named = False
        for page in pages:
            if not first <= page < end or not on_loan[page] or not asked[page] or busy[page]:
                return False
            if (holder and holder[page] >= 0) or (peer and peer[page] != no_peer):
                return False
            named = named or tables[page]
        if len(pages) > 1 and len(set(pages)) < len(pages):
            return False
        if others:
            self._consult(event, others)
        for page in pages:
            on_loan[page] = asked[page] = False
        pool.lent -= len(pages)
        pool.asked_pages -= len(pages)
        pool.came.append(pages)
        shadow = self._shadow
        shadow.returns.append(event)
        if named:
            shadow.named_returns.append(event)
        return True

    def bind(self, event: Event, others: list[Check]) -> bool:
        """Source pages that had no peer, each once, to target pages on loan that nobody holds, or to none."""
        target = self._cells[event.pool]
        edge, pages, peers = target.inward, event.pages, event.peers
        source, peer, holder, no_peer = edge.source, edge.peer, edge.holder, edge.no_peer
        first, end, on_loan = source.first, source.end, target.on_loan
        named = 0
        for at, page in enumerate(pages):
            entry = peers[at]
            if not first <= page < end or peer[page] != no_peer:
                return False
            if entry != no_peer:
                if not target.first <= entry < target.end or holder[entry] >= 0 or not on_loan[entry]:
                    return False
                named += 1
        if len(pages) > 1 and len(set(pages)) < len(pages):
            return False
        if named and (named < len(peers) or (named > 1 and len(set(peers)) < named)):
            return False
        if others:
            self._consult(event, others)
        if named:
            for at, page in enumerate(pages):
                entry = peers[at]
                peer[page] = entry
                holder[entry] = page
            edge.edge.mapped += named
        return True

    def write(self, event: Event, others: list[Check]) -> bool:
        """Pages that the pool has."""
        cells, pages = self._cells[event.pool], event.pages
        lent_by, written_in = cells.lent_by, cells.transfers.written_cells
        for page in pages:
            if not 0 <= page < len(lent_by):
                return False
        if others:
            self._consult(event, others)
        for page in pages:
            written_in[page] = lent_by[page]
        return True

    def map(self, event: Event, others: list[Check]) -> bool:
        """What the mapping says is what the shadow says."""
        edge = self._cells[event.pool].inward
        first, end, peer = edge.source.first, edge.source.end, edge.peer
        for page, entry in zip(event.pages, event.peers, strict=True):
            if not first <= page < end or peer[page] != entry:
                return False
        if others:
            self._consult(event, others)
        self._shadow.last_map = event
        return True

    def slots(self, event: Event, others: list[Check]) -> bool:
        """Slots of a page with a peer map into it at their own offset; those of one without map into no page."""
        target = self._cells[event.pool]
        edge = target.inward
        size, target_size = edge.source.pool.shape.page_size, target.pool.shape.page_size
        first, end, peer = edge.source.first, edge.source.end, edge.peer
        for slot, entry in zip(event.pages, event.peers, strict=True):
            page, offset = divmod(slot, size)
            if not first <= page < end:
                return False
            if entry != peer[page] * size + offset and target.first <= entry // target_size < target.end:
                return False
        if others:
            self._consult(event, others)
        return True
