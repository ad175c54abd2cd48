"""The whole shadow of one rank: its pools, edges, request tables and the causes of what happened.

An event is applied after every rule has seen it. Only the part of an event that makes sense is applied, so that
one violation is not reported again as another; the difference that stays is kept as `extra` pages (pool_shadow.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from stress.check.causes import Causes
from stress.check.event import Cause, EdgeShape, Event, EventKind, PoolShape
from stress.check.lock_shadow import Locks
from stress.check.masks import any_of
from stress.check.pool_shadow import EdgeShadow, PoolShadow
from stress.check.promises import Promises
from stress.check.reference_shadow import References
from stress.check.table_change import ONCE, first_difference
from stress.check.transfer_shadow import TransferShadow

_NOTHING = np.empty(0, dtype=np.int64)
# Operations that end a request's hold on its pages, or repoint its row to the cache's copy of them.
_OWN_KINDS = frozenset({"finish", "abort", "retract", "checkpoint"})
LOOKED_AT = frozenset({EventKind.LEND, EventKind.RETURN, EventKind.INTENT, EventKind.FREE_LIST})


class Shadow:
    """Of all pools of one rank. Causes stand by their number (causes.py)."""

    def __init__(self, pools: tuple[PoolShape, ...], edges: tuple[EdgeShape, ...]):
        self.pools = {shape.name: PoolShadow(shape) for shape in pools}
        self.edges = [EdgeShadow(e, self.pools[e.source], self.pools[e.target]) for e in edges]
        self.edge_into = {edge.shape.target: edge for edge in self.edges}
        self.edges_from: dict[str, list[EdgeShadow]] = {name: [] for name in self.pools}
        for edge in self.edges:
            self.edges_from[edge.shape.source].append(edge)
        self.tables: dict[int | tuple[int, str], np.ndarray] = {}  # by Event.owner
        self.transfers = TransferShadow(self.pools)
        # By owner: runs of its table: (place of the first page, number of the cause with which it got those pages).
        self.rows_gained: dict[int | tuple[int, str], list[tuple[int, int]]] = {}
        self.references = References(self.pools)
        self.promises = Promises(self.pools)
        self.locks = Locks(self.pools, self.edge_into)
        self.causes = Causes(self._named_causes)
        self.strays = False  # ids were lent that no pool has (strays.py)
        # Which event last took its peer from a source page, by (edge's target pool, page), as far as it is remembered.
        self.last_unmap: Callable[[str, int], Event | None] = lambda _pool, _page: None
        self.cached: np.ndarray | None = None  # as of the sweep at hand
        self.last_map: Event | None = None  # whose pages a SLOTS event samples
        # Of the operation at hand: whether the rules had to judge an event of it that moves pages, what came back,
        # and of that what a request's table may have named.
        self.doubtful = False
        self.returns: list[Event] = []
        self.named_returns: list[Event] = []
        # By pool: for each page the last operation that may give it up, and the (operation, request) marked last.
        self._own: dict[str, np.ndarray] = {}
        self._marked: dict[str, tuple[int, int]] = {}
        self._apply = {
            EventKind.LEND: self._lend,
            EventKind.RETURN: self._return,
            EventKind.INTENT: self._intent,
            EventKind.REF: self.references.take,
            EventKind.UNREF: self.references.give_up,
            EventKind.BIND: self._bind,
            EventKind.HOLD: self._hold,
            EventKind.GROUP_BEGIN: self._group_begin,
            EventKind.GROUP_END: self._group_end,
            EventKind.CACHED: self._cached,
            EventKind.COUNTS: self._counts,
            EventKind.MAP: self._map,
            EventKind.WRITTEN: self._written,
            EventKind.PROMISED: self.promises.make,
            EventKind.WITHDRAWN: lambda event: self.promises.withdraw(event, self.causes.number(event.cause)),
            EventKind.TRANSFER_BEGIN: lambda event: self.transfers.begin(event, self),
            EventKind.TRANSFER_END: lambda event: self.transfers.end(event, self),
            EventKind.FREE_LIST: lambda event: self.pools[event.pool].trust_free_list(),
            EventKind.LOCK: self.locks.take,
            EventKind.UNLOCK: self.locks.give_up,
        }

    def named(self, pool: str) -> list[PoolShadow]:
        """The pool of that name, or all of them for ALL_POOLS."""
        return [self.pools[pool]] if pool else list(self.pools.values())

    def apply_of(self, kind: EventKind) -> Callable[[Event], None] | None:
        """What takes an event of this kind into the state, after the rules have seen it; None: nothing does.

        Where the kind is in LOOKED_AT and the event has no peers, `PoolShadow.look` comes before all that.
        """
        return self._apply.get(kind)

    def end_operation(self) -> None:
        """The rules have judged the operation; a sweep's view of the cache is old from now on."""
        self.cached = None
        self.doubtful = False
        self.returns.clear()
        self.named_returns.clear()
        self.references.touched.clear()
        self.promises.end_operation()
        for edge in self.edges:
            edge.doubled.clear()

    def _named_causes(self) -> Iterator[np.ndarray]:
        """The numbers of causes that pages and tables still speak of."""
        for pool in self.pools.values():
            yield pool.lent_by
        yield from self.transfers.named_causes()
        yield from self.promises.named_causes()
        yield np.array([number for runs in self.rows_gained.values() for _, number in runs], dtype=np.int64)

    def held(self, pool: PoolShadow) -> np.ndarray | None:
        """Mask over `pool.valid`: still mapped by a source page and not asked back. None: none is."""
        edge = self.edge_into.get(pool.shape.name)
        if edge is None:
            return None
        held = edge.holder[pool.valid] >= 0
        return held & ~pool.asked[pool.valid] if any_of(held) else None

    def table_of_cause(self, cause: Cause) -> np.ndarray:
        """The pages that the operation's own request may give up: its table, if the operation ends or repoints it."""
        if cause.rid < 0 or cause.kind not in _OWN_KINDS:
            return _NOTHING
        return self.tables.get(cause.rid, _NOTHING)

    def may_give_up(self, pool: PoolShadow, cause: Cause) -> np.ndarray:
        """By page of the pool: equal to the operation's number where `table_of_cause` names it."""
        name, mark = pool.shape.name, (cause.operation, cause.rid)
        own = self._own.get(name)
        if own is None:
            own = self._own[name] = np.full(len(pool.tables), -1, dtype=np.int64)
        if self._marked.get(name) != mark:
            self._marked[name] = mark
            own[pool.inside(self.table_of_cause(cause))] = cause.operation
        return own

    def _lend(self, event: Event) -> None:
        pool = self.pools[event.pool]
        self.strays = self.strays or len(pool.outside) > 0
        if event.token < 0:
            pool.lend(event.cause.rid, self.causes.number(event.cause))
            return
        written = pool.valid[self.transfers.is_written(event.pool, pool.valid)]
        withdrawn = self.promises.withdrawn(event.pool, pool.valid)
        loaded = pool.valid[self.transfers.load_ended(event.pool, pool.valid)]
        pool.lend(event.cause.rid, self.causes.number(event.cause))
        self.transfers.write(event, written)
        self.transfers.keep_ends(event.pool, loaded)
        self.promises.keep(event.pool, withdrawn)

    def _return(self, event: Event) -> None:
        pool = self.pools[event.pool]
        self.returns.append(event)
        if self.tables and pool.tables_named:
            self.named_returns.append(event)
        pool.take_back(self.held(pool))

    def _intent(self, event: Event) -> None:
        pool = self.pools[event.pool]
        if event.peers is None:
            pool.ask(pool.valid)
        else:
            pool.ask(self.edge_into[event.pool].unmap(event.pages))
        pool.asking.append(event)

    def _bind(self, event: Event) -> None:
        self.edge_into[event.pool].bind(event.pages, event.peers)

    def _map(self, event: Event) -> None:
        self.last_map = event

    def _hold(self, event: Event) -> None:
        pool, rid, new = self.pools[event.pool], event.cause.rid, event.pages
        old = self.tables.get(event.owner, _NOTHING)
        same = first_difference(old, new)
        np.subtract.at(pool.tables, pool.inside(old[same:]), ONCE)
        gained = pool.inside(new[same:])
        self.references.touch(event.pool, new[same:])
        self.references.touch(event.pool, old[same:])
        np.add.at(pool.tables, gained, ONCE)
        pool.owner[gained[pool.owner[gained] < 0]] = rid
        self.set_table(pool, event.cause, event.owner, new, same)

    def set_table(self, pool: PoolShadow, cause: Cause, owner, pages: np.ndarray, same: int) -> None:
        """The table of that owner is `pages` now, the first `same` as before; none: it has gone."""
        if not len(pages):
            self.tables.pop(owner, None)
            self.rows_gained.pop(owner, None)
            return
        self.tables[owner] = pages
        runs = self.rows_gained.setdefault(owner, [])
        while runs and runs[-1][0] >= same:
            runs.pop()
        if len(pages) > same:
            runs.append((same, self.causes.number(cause)))
        pool.tables_named = True

    def gained_in(self, owner: int | tuple[int, str], first: int, count: int) -> np.ndarray:
        """int64[count]: number of the cause that gave each page from place `first` on. Unknown: the following."""
        known, end = np.full(count, self.causes.following, dtype=np.int64), count
        for place, index in reversed(self.rows_gained.get(owner, ())):
            start = max(0, place - first)
            known[start:end] = index
            if not start:
                break
            end = min(end, start)
        return known

    def _group_begin(self, event: Event) -> None:
        for pool in self.named(event.pool):
            pool.group_open = True

    def _group_end(self, event: Event) -> None:
        for pool in self.named(event.pool):
            pool.group_open = False
            pool.close()

    def _counts(self, event: Event) -> None:
        if event.method == "raised":
            # The operation stopped half-way: its request's row still names what it gave back.
            self.named_returns.clear()

    def _written(self, event: Event) -> None:
        self.transfers.write(event, self.pools[event.pool].inside(event.pages))

    def _cached(self, event: Event) -> None:
        self.cached = event.pages
