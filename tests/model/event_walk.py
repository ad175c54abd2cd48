"""Random walks of events over two small pools, in order but for a few, shown to a short and to a long ledger alike.

A walk looks at the long ledger's shadow to choose what would be in order, for some operations. Then it makes much of it
wrong: a page too many, twice, another one, an entry that differs. It ends with the operation in which a rule speaks.
"""

from __future__ import annotations

import random

import numpy as np

from stress.check.event import ALL_OBSERVATIONS, ALL_POOLS, Cause, EdgeShape, Event, EventKind, PoolShape
from stress.check.shadow import Ledger

PAGE, FULL, SWA = 4, 8, 6
POOLS = (PoolShape("full", FULL, PAGE, 0), PoolShape("swa", SWA, PAGE, 0))
EDGES = (EdgeShape("full", "swa"),)
SIZES = {"full": FULL, "swa": SWA}
# Those whose events are proved, and who else looks at what moves pages.
RULES = ["I1", "I2", "I3", "I4", "I5", "I6", "I7", "I8", "I11", "I12", "I13", "I15"]
# Without what the cache itself says of requests: the walk has none, and its counts are drawn.
OBSERVES = ALL_OBSERVATIONS - {"cache", "references"}
KINDS = ("admit", "extend", "checkpoint", "finish", "abort", "retract", "poll")
AS_LISTS = frozenset(map(EventKind, ("lend", "return", "intent", "bind", "map", "slots", "counts")))
MAY_BE_EMPTY = frozenset(map(EventKind, ("group_begin", "group_end", "hold", "cached")))
ODD = 0.04  # how often something is made wrong, once a walk has come to that


class EventWalk:
    """`shown`: called with the walk after each event and operation."""

    def __init__(self, seed: int, shown) -> None:
        self.draw, self.shown = random.Random(seed), shown
        self.in_order = self.draw.randrange(30)  # operations
        self.short, self.long = (
            Ledger(POOLS, EDGES, rules=RULES, observes=OBSERVES, short_cuts=short) for short in (True, False)
        )
        self.shadow = self.long.shadow
        self.full, self.swa = self.shadow.pools["full"], self.shadow.pools["swa"]
        self.edge = self.shadow.edges[0]
        self.number = self.call = self.token = 0
        self.cause = Cause(0, "poll", -1, "")

    def run(self, steps: int) -> None:
        moves = (self.lend, self.load, self.free, self.free_sides, self.group, self.hold, self.count)
        moves += (self.transfer, self.lock, self.look, self.bind, self.flush, self.lend, self.sweep)
        while steps > 0 and not self.long.findings:
            self.number += 1
            kind = self.draw.choice(KINDS)
            self.cause = Cause(self.number, kind, -1 if kind == "poll" else self.draw.randrange(3), "")
            for _ in range(self.draw.randint(1, 4)):
                steps -= 1
                self.call += 1
                self.draw.choice(moves)()
            if self.draw.random() < 0.5:
                self.count()
            for ledger in (self.short, self.long):
                ledger.settle(self.number, self.number)
            self.shown(self)

    # Choices

    def wrong(self, times: int = 1) -> bool:
        return self.number > self.in_order and self.draw.random() < ODD * times

    def some(self, pages: list[int], most: int = 3) -> list[int]:
        return self.draw.sample(pages, min(len(pages), self.draw.randint(1, most)))

    def bent(self, pages: list[int], size: int) -> list[int]:
        """The pages, or something else than those."""
        if not (pages and self.wrong(8)):
            return pages
        other, at = self.draw.randrange(-1, size + 2), self.draw.randrange(len(pages))
        choices = ([*pages, other], [*pages, pages[at]], [*pages[:at], other, *pages[at + 1 :]], pages[1:])
        return self.draw.choice(choices)

    def free_of(self, pool) -> list[int]:
        return [page for page in range(1, pool.end) if not pool.on_loan[page]]

    def lent_of(self, pool) -> list[int]:
        return [page for page in range(1, pool.end) if pool.on_loan[page]]

    def peers_of(self, pages: list[int]) -> list[int]:
        return [int(self.edge.peer[page]) for page in pages]

    def may_go(self) -> list[int]:
        """FULL pages that the operation may give up; any, now and then."""
        lent, own = self.lent_of(self.full), set(self.shadow.table_of_cause(self.cause).tolist())
        busy = {name: self.shadow.transfers.of(name).busy for name in SIZES}
        locked = {name: self.shadow.locks.holders_in(name) for name in SIZES}

        def idle(page: int) -> bool:
            named = self.full.tables[page] > (page in own)
            held = locked["full"][page] or locked["swa"][page] or busy["full"][page]
            return not (self.full.asked[page] or named or held or busy["swa"][self.edge.peer[page]])

        return [page for page in lent if idle(page) or self.wrong(5)]

    def places(self, pages: list[int]) -> list[int]:
        """Those that the source pool's arrays have a place for: the others are test_strays.py's."""
        return [page for page in pages if 0 <= page <= FULL]

    # Moves

    def lend(self) -> None:
        count = min(len(self.free_of(self.full)), len(self.free_of(self.swa)), self.draw.randint(1, 3))
        pages = self.bent(self.free_of(self.full)[:count], FULL)
        peers = self.bent(self.free_of(self.swa)[:count], SWA)
        self.tell(EventKind.LEND, "full", pages)
        self.tell(EventKind.LEND, "swa", peers)
        both = list(zip(self.places(pages), peers, strict=False))
        if both and not self.wrong():
            self.tell(EventKind.BIND, "swa", [page for page, _ in both], [peer for _, peer in both])
        self.read(self.places(pages))

    def load(self) -> None:
        pages = self.bent(self.some(self.free_of(self.full)), FULL)
        self.tell(EventKind.LEND, "full", pages)
        self.tell(EventKind.BIND, "swa", self.places(pages), [0] * len(self.places(pages)))

    def free(self) -> None:
        """Through the mapping: in a group the pages come later."""
        pages = self.places(self.bent(self.some(self.may_go()), FULL))
        peers = self.bent_peers(pages)
        self.tell(EventKind.INTENT, "swa", pages, peers)
        if not self.swa.group_open:
            self.tell(EventKind.RETURN, "swa", self.bent([peer for peer in peers if peer], SWA))
        self.read(pages)

    def free_sides(self) -> None:
        bare = [page for page in self.may_go() if not self.edge.peer[page] or self.wrong()]
        if self.wrong(5):
            bare = list(range(1, FULL + 1))
        pages = self.bent(self.some(bare), FULL)
        self.tell(EventKind.INTENT, "full", pages)
        if not self.full.group_open:
            self.tell(EventKind.RETURN, "full", self.bent(pages, FULL))

    def group(self) -> None:
        if self.full.group_open and not self.wrong(5):
            self.flush()
        together = self.full.group_open == self.swa.group_open and self.draw.random() < 0.5
        for name in [ALL_POOLS] if together else SIZES:
            ends = self.shadow.named(name)[0].group_open and not self.wrong()
            self.tell(EventKind.GROUP_END if ends else EventKind.GROUP_BEGIN, name, [])

    def flush(self) -> None:
        for name, pool in self.shadow.pools.items():
            if pool.group_open:
                pages = np.flatnonzero(pool.asked).tolist()
                if self.wrong(5):
                    pages += self.some(self.lent_of(pool), 1)  # which may not have been asked for
                self.tell(EventKind.RETURN, name, self.bent(pages, SIZES[name]))

    def hold(self) -> None:
        rid, lent = self.draw.randrange(3), self.lent_of(self.full)
        old = self.shadow.tables.get(rid, np.empty(0, dtype=np.int64)).tolist()
        kept = old[: self.draw.randint(0, len(old))] if self.draw.random() < 0.5 else old
        new = self.some([page for page in lent if not self.full.asked[page] or self.wrong()])
        named = self.places(self.bent(kept + new, FULL))
        grows = named[: len(old)] == old and self.draw.random() < 0.5
        self.tell(EventKind.HOLD, "full", named, rid=rid, token=len(old) if grows else -1)

    def count(self) -> None:
        for name, pool in self.shadow.pools.items():
            counts = [SIZES[name], SIZES[name] - pool.lent + pool.surplus + self.wrong()]
            if self.draw.random() < 0.5:
                counts += [self.draw.randint(0, pool.lent), int(self.wrong())]
            self.tell(EventKind.COUNTS, name, counts, method=self.draw.choice(("end", "end", "raised")))

    def sweep(self) -> None:
        """What is in no table and has not been asked back is the cache's."""
        pool = self.full
        named = pool.tables > 0
        cached = np.flatnonzero(pool.on_loan & ~pool.asked & ~named).tolist()
        evictable = pool.lent - pool.asked_pages - int(np.count_nonzero(named[1:])) + self.wrong(5)
        if evictable < 0:
            return
        self.tell(EventKind.CACHED, "full", cached)
        counts = [FULL, FULL - pool.lent + pool.surplus, evictable, 0]
        self.tell(EventKind.COUNTS, "full", counts, method="sweep")

    def transfer(self) -> None:
        moving = self.shadow.transfers.open
        if moving and self.draw.random() < 0.6:
            token = self.draw.choice(list(moving))
            self.tell(
                EventKind.TRANSFER_END, "full", moving[token].pages.tolist(), method="done", token=token
            )
            return
        pages, kind = self.some(self.lent_of(self.full)), self.draw.choice(("load", "offload"))
        self.token += 1
        self.tell(EventKind.TRANSFER_BEGIN, "full", pages, pages, kind, self.token)
        if self.draw.random() < 0.5:
            self.tell(EventKind.TRANSFER_BEGIN, "swa", pages, None, kind, self.token)

    def lock(self) -> None:
        held = self.shadow.locks.held
        if held and self.draw.random() < 0.6:
            pool, token = self.draw.choice(list(held))
            self.tell(EventKind.UNLOCK, pool, held[pool, token].tolist(), token=token)
            return
        pages = sorted(self.some(self.lent_of(self.full)))
        self.token += 1
        self.tell(EventKind.LOCK, "full", pages, token=self.token)
        if self.draw.random() < 0.5:
            self.tell(EventKind.LOCK, "swa", pages[:1], token=self.token)

    def look(self) -> None:
        self.read(self.some(list(range(1, FULL + 1)), 5))

    def bind(self) -> None:
        """Pages that have no peer get pages lent for them; or any pages other peers, or none."""
        bare = [page for page in self.lent_of(self.full) if not self.edge.peer[page] or self.wrong(5)]
        pages = self.places(self.bent(self.some(bare), FULL))
        peers = self.free_of(self.swa)[: len(pages)]
        if self.wrong(5):
            peers = [self.draw.randrange(SWA + 2) for _ in pages]
        elif len(peers) < len(pages):
            peers = [0] * len(pages)
        else:
            self.tell(EventKind.LEND, "swa", peers)
        self.tell(EventKind.BIND, "swa", pages, peers)

    def bent_peers(self, pages: list[int]) -> list[int]:
        return [self.draw.randrange(SWA + 2) if self.wrong() else peer for peer in self.peers_of(pages)]

    def read(self, pages: list[int]) -> None:
        self.tell(EventKind.MAP, "swa", pages, self.bent_peers(pages))
        slots = [page * PAGE + offset for page in pages for offset in (1, PAGE - 1)]
        peers = [int(self.edge.peer[slot // PAGE]) for slot in slots]
        entries = [peer * PAGE + slot % PAGE if peer else 0 for peer, slot in zip(peers, slots, strict=True)]
        bent = [self.draw.randrange(SWA * PAGE) if self.wrong() else entry for entry in entries]
        self.tell(EventKind.SLOTS, "swa", slots, bent)

    def tell(
        self, kind: EventKind, pool: str, pages: list, peers=None, method="told", token=-1, rid=None
    ) -> None:
        """Few pages now and then come as a list, as the probe tells them."""
        if not pages and kind not in MAY_BE_EMPTY:
            return
        listed = kind in AS_LISTS and self.draw.random() < 0.5
        cause = self.cause if rid is None else self.cause.of(rid)

        def column(ids):
            return list(ids) if listed or ids is None else np.array(ids, dtype=np.int64)

        for ledger in (self.short, self.long):
            columns = column(pages), None if peers is None else column(peers)
            ledger.observe(Event(kind, pool, *columns, cause, self.call, method, self.number, token))
        self.shown(self)
