"""Proofs for events of many pages, a few numpy operations each, and for request tables."""

from __future__ import annotations

import numpy as np

from stress.check.event import Event
from stress.check.masks import all_of, any_of
from stress.check.pool_shadow import PoolShadow
from stress.check.proof import Check, Consult, EdgeCells, PoolCells
from stress.check.state import Shadow
from stress.check.table_change import ONCE, first_difference

_NOTHING = np.empty(0, dtype=np.int64)
_FEW = 16  # pages of a table's change that are looked at one by one


class Many:
    """`pages` and `peers` of an event are arrays here."""

    def __init__(self, shadow: Shadow, cells: dict[str, PoolCells], consult: Consult):
        self._shadow, self._cells, self._consult = shadow, cells, consult

    def lend(self, event: Event, others: list[Check]) -> bool:
        if event.token >= 0:
            return False  # what is in the pages stays: that is not taken in here
        pool = self._cells[event.pool].pool
        pool.look(event.pages)
        if pool.loans or pool.repeated is not None or len(pool.outside):
            return False
        if _under_transfer(self._cells[event.pool], event.pages):
            return False
        if others:
            self._consult(event, others)
        pool.lend(event.cause.rid, self._shadow.causes.number(event.cause))
        return True

    def ask(self, event: Event, others: list[Check]) -> bool:
        if event.peers is not None:
            return self._ask_through(event, others)
        pool, pages = self._cells[event.pool].pool, event.pages
        pool.look(pages)
        if pool.loans < len(pages) or pool.repeated is not None or any_of(pool.asked[pages]):
            return False
        may_be_locked = self._shadow.locks.held and self._cells[event.pool].inward is None
        if may_be_locked and np.count_nonzero(self._shadow.locks.holders_in(event.pool)[pages]):
            return False
        tables = pool.tables[pages]
        if np.count_nonzero(tables):
            own = self._shadow.may_give_up(pool, event.cause)[pages] == event.cause.operation
            if any_of(tables > own):
                return False
        if others:
            self._consult(event, others)
        pool.asked[pages] = True
        pool.asked_pages += len(pages)
        pool.asking.append(event)
        return True

    def _ask_through(self, event: Event, others: list[Check]) -> bool:
        target = self._cells[event.pool]
        pool, edge, pages, entries = target.pool, target.inward.edge, event.pages, event.peers
        if not _distinct_sources(target.inward, pages) or any_of(edge.peer[pages] != entries):
            return False
        named = edge.is_page(entries)
        sources, peers = pages, entries
        if not all_of(named):
            sources, peers = pages[named], entries[named]
        if any_of(edge.holder[peers] != sources):
            return False
        if self._shadow.locks.held and np.count_nonzero(self._shadow.locks.holders_in(event.pool)[sources]):
            return False
        if not _is_lent(pool, peers):
            return False
        if others:
            self._consult(event, others)
        pool.asking.append(event)
        edge.peer[sources] = edge.no_peer
        edge.holder[peers] = -1
        edge.mapped -= len(peers)
        pool.asked[peers] = True
        pool.asked_pages += len(peers)
        return True

    def come(self, event: Event, others: list[Check]) -> bool:
        cells, pages = self._cells[event.pool], event.pages
        pool = cells.pool
        pool.look(pages)
        if pool.orphans or pool.loans < len(pages) or pool.repeated is not None:
            return False
        if not all_of(pool.asked[pages]) or _under_transfer(cells, pages):
            return False
        if cells.inward is not None and any_of(cells.inward.edge.holder[pages] >= 0):
            return False
        out = cells.outward
        if out is not None and any_of(out.edge.peer[pages] != out.no_peer):
            return False
        if others:
            self._consult(event, others)
        pool.on_loan[pages] = False
        pool.asked[pages] = False
        pool.lent -= len(pages)
        pool.asked_pages -= len(pages)
        pool.came.append(pages)
        self._shadow.returns.append(event)
        if np.count_nonzero(pool.tables[pages]):
            self._shadow.named_returns.append(event)
        return True

    def bind(self, event: Event, others: list[Check]) -> bool:
        target = self._cells[event.pool]
        pool, edge, pages, peers = target.pool, target.inward.edge, event.pages, event.peers
        if not _distinct_sources(target.inward, pages) or any_of(edge.peer[pages] != edge.no_peer):
            return False
        named = np.count_nonzero(edge.is_page(peers))
        if named and (named < len(peers) or pool.repeats(peers) is not None):
            return False
        if not named and any_of(peers != edge.no_peer):
            return False
        if named and not all_of(pool.on_loan[peers] & (edge.holder[peers] < 0)):
            return False
        if others:
            self._consult(event, others)
        if named:
            edge.peer[pages] = peers
            edge.holder[peers] = pages
            edge.mapped += named
        return True

    def map(self, event: Event, others: list[Check]) -> bool:
        edge = self._cells[event.pool].inward
        if not _in_range(edge.source, event.pages):
            return False
        if any_of(edge.edge.peer[event.pages] != event.peers):
            return False
        if others:
            self._consult(event, others)
        self._shadow.last_map = event
        return True

    def hold(self, event: Event, others: list[Check]) -> bool:
        """A table grows by pages on loan that nobody has asked back, or shrinks."""
        cells, rid, new, shadow = self._cells[event.pool], event.cause.rid, event.pages, self._shadow
        if type(new) is list or event.table:
            return False
        old = shadow.tables.get(rid, _NOTHING)
        same = event.token if event.token >= 0 else first_difference(old, new)
        gained, pool = new[same:], cells.pool
        lost = _NOTHING if same == len(old) else old[same:]
        if len(gained) <= _FEW:
            gained = gained.tolist()
            held = self._may_be_held(cells, gained)
        else:
            held = _in_range(cells, gained) and _is_lent(pool, gained)
        if not held:
            return False
        if others:
            self._consult(event, others)
        if len(lost):
            np.subtract.at(pool.tables, pool.inside(lost), ONCE)
        if type(gained) is list:
            tables, owner = cells.tables, cells.owner
            for page in gained:
                tables[page] += 1
                if owner[page] < 0:
                    owner[page] = rid
        else:
            np.add.at(pool.tables, gained, ONCE)
            unknown = pool.owner[gained] < 0
            if any_of(unknown):
                pool.owner[gained[unknown]] = rid
        shadow.set_table(pool, event.cause, rid, new, same)
        return True

    def _may_be_held(self, cells: PoolCells, gained: list[int]) -> bool:
        first, end, on_loan, asked = cells.first, cells.end, cells.on_loan, cells.asked
        for page in gained:  # noqa: SIM110 - a generator takes twice as long
            if not first <= page < end or not on_loan[page] or asked[page]:
                return False
        return True


def _under_transfer(cells: PoolCells, pages: np.ndarray) -> bool:
    return cells.transfers.moving and np.count_nonzero(cells.transfers.busy[pages]) > 0


def _is_lent(pool: PoolShadow, pages: np.ndarray) -> bool:
    """All are on loan and not asked back."""
    return all_of(pool.on_loan[pages] > pool.asked[pages])


def _in_range(cells: PoolCells, pages: np.ndarray) -> bool:
    return all_of((pages - cells.first).view(np.uint64) < cells.pool.shape.pages)


def _distinct_sources(edge: EdgeCells, pages: np.ndarray) -> bool:
    return _in_range(edge.source, pages) and edge.source.pool.repeats(pages) is None
