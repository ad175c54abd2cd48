"""The short way through the ledger: an event that is plainly in order is proved so and taken in, in one pass.

A proof covers all rules marked `proved` at once: what it accepts, none of them would report, and the state that it
leaves is the one that the long way (rules, then `Shadow`) would have left. Whatever it does not accept, odd or merely
rare, goes the long way and is judged there: so no finding ever comes from here, and none is lost. `few` takes pages
as a list, by plain integers, for a numpy call on one page is dear; `many` takes arrays. After the first violation a
ledger goes the long way only: no proof then needs to know what has been reported.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from stress.check.event import Event, EventKind
from stress.check.pool_shadow import EdgeShadow, PoolShadow
from stress.check.state import Shadow
from stress.check.transfer_shadow import PoolTransfers

Check = Callable
Proof = Callable[[Event, list[Check]], bool]
# consult(event, checks): rules that are not `proved` see the event before it is taken in.
Consult = Callable[[Event, list[Check]], None]


class PoolCells:
    """A pool's state page by page: memoryviews of its arrays, and the edge that leads into it and out of it."""

    __slots__ = (
        "asked",
        "busy",
        "end",
        "first",
        "holder",
        "inward",
        "lent_by",
        "no_peer",
        "on_loan",
        "outward",
        "owner",
        "peer",
        "pool",
        "tables",
        "transfers",
    )

    def __init__(self, pool: PoolShadow, transfers: PoolTransfers):
        self.pool = pool
        self.transfers = transfers
        self.busy = transfers.busy_cells
        self.first, self.end = pool.first, pool.end
        self.on_loan = memoryview(pool.on_loan)
        self.asked = memoryview(pool.asked)
        self.owner = memoryview(pool.owner)
        self.lent_by = memoryview(pool.lent_by)
        self.tables = memoryview(pool.tables)
        self.inward: EdgeCells | None = None
        self.outward: EdgeCells | None = None
        # Of these edges: what maps to each page, and what each maps to.
        self.holder: memoryview | None = None
        self.peer: memoryview | None = None
        self.no_peer = 0


class EdgeCells:
    """An edge's state page by page."""

    __slots__ = ("edge", "holder", "no_peer", "peer", "source", "target")

    def __init__(self, edge: EdgeShadow, source: PoolCells, target: PoolCells):
        self.edge = edge
        self.no_peer = edge.no_peer
        self.peer = memoryview(edge.peer)
        self.holder = memoryview(edge.holder)
        self.source, self.target = source, target


def cells_of(shadow: Shadow) -> dict[str, PoolCells] | None:
    """The cells of each pool; None where more than one edge leads into or out of a pool: no proofs then."""
    cells = {name: PoolCells(pool, shadow.transfers.of(name)) for name, pool in shadow.pools.items()}
    for edge in shadow.edges:
        source, target = cells[edge.shape.source], cells[edge.shape.target]
        if source.outward or target.inward:
            return None
        cells_of_edge = source.outward = target.inward = EdgeCells(edge, source, target)
        target.holder = cells_of_edge.holder
        source.peer, source.no_peer = cells_of_edge.peer, cells_of_edge.no_peer
    return cells


class Proofs(NamedTuple):
    """How events of one kind are proved; None: they are not."""

    few: Proof | None = None
    many: Proof | None = None


class States:
    """Proofs of events without pages: groups that open and close, counts."""

    def __init__(self, shadow: Shadow, cells: dict[str, PoolCells], consult: Consult):
        self._shadow, self._cells, self._consult = shadow, cells, consult
        self._all = [of.pool for of in cells.values()]

    def group_begin(self, event: Event, others: list[Check]) -> bool:
        pools = self._named(event.pool)
        for pool in pools:
            if pool.group_open:
                return False
        if others:
            self._consult(event, others)
        for pool in pools:
            pool.group_open = True
        return True

    def group_end(self, event: Event, others: list[Check]) -> bool:
        """What was proved when it was asked back, and when it came, is in order once nothing is left asked."""
        pools = self._named(event.pool)
        for pool in pools:
            if pool.doubtful or pool.asked_pages:
                return False
        if others:
            self._consult(event, others)
        for pool in pools:
            pool.group_open = False
            if pool.asking or pool.came:
                pool.close()
        return True

    def _named(self, pool: str) -> list[PoolShadow]:
        return self._all if not pool else [self._cells[pool].pool]

    def counts(self, event: Event, others: list[Check]) -> bool:
        if event.method == "raised" or event.method == "sweep":
            return False
        if not counts_in_order(self._cells[event.pool].pool, event.pages):
            return False
        if others:
            self._consult(event, others)
        return True


def counts_in_order(pool: PoolShadow, counts: Sequence[int]) -> bool:
    """COUNTS (size, available), or with evictable and protected, that are what the shadow has."""
    if counts[1] != pool.shape.pages - pool.lent + pool.surplus:
        return False
    return len(counts) < 4 or counts[2] + counts[3] <= pool.lent


def proofs_of(shadow: Shadow, consult: Consult) -> dict[EventKind, Proofs]:
    """The proofs by kind; {} where the shape of the pools has none."""
    from stress.check.proof_few import Few
    from stress.check.proof_many import Many

    cells = cells_of(shadow)
    if cells is None:
        return {}
    few, many = Few(shadow, cells, consult), Many(shadow, cells, consult)
    states = States(shadow, cells, consult)
    return {
        EventKind.LEND: Proofs(few.lend, many.lend),
        EventKind.RETURN: Proofs(few.come, many.come),
        EventKind.INTENT: Proofs(few.ask, many.ask),
        EventKind.BIND: Proofs(few.bind, many.bind),
        EventKind.MAP: Proofs(few.map, many.map),
        EventKind.SLOTS: Proofs(few.slots, None),
        EventKind.WRITTEN: Proofs(few.write, None),
        EventKind.HOLD: Proofs(many.hold, many.hold),
        EventKind.GROUP_BEGIN: Proofs(states.group_begin, states.group_begin),
        EventKind.GROUP_END: Proofs(states.group_end, states.group_end),
        EventKind.COUNTS: Proofs(states.counts, states.counts),
    }
