"""Pools whose pages are objects that carry their counts, under watch: a correct one, and one that frees twice."""

from collections import deque

import numpy as np

from stress.check.event import Cause, EventKind, PoolShape
from stress.check.shadow import Ledger
from stress.probe.object_watch import ObjectWatch

PAGES, PAGE = 8, 4
OBSERVED = ("lends", "returns", "groups", "references", "page_objects", "tables", "counts", "drain")


class Page:
    def __init__(self, pool, number):
        self.pool, self.number, self.count = pool, number, 0

    def ref_count_up(self):
        self.count += 1

    def ref_count_down(self):
        """A count is never below zero: whoever brings it there has nothing to give up."""
        if self.count:
            self.count -= 1
            if not self.count:
                self.pool.free(self)


class TwiceFreed(Page):
    """As LMCache's up to 0.5.6: a count below zero is set to zero, and what stands at zero is freed."""

    def ref_count_down(self):
        self.count = max(0, self.count - 1)
        if not self.count:
            self.pool.free(self)


class Pool:
    """Batches as LMCache does them: page by page, and back as a whole when there are too few."""

    def __init__(self, kind):
        self.free_blocks = deque(kind(self, number) for number in range(1, PAGES + 1))

    def allocate(self):
        taken = self.batched_allocate(1)
        return taken and taken[0]

    def batched_allocate(self, count):
        taken = []
        while len(taken) < count:
            if not self.free_blocks:
                self.batched_free(taken)
                return None
            page = self.free_blocks.popleft()
            page.count = 1
            taken.append(page)
        return taken

    def free(self, page):
        self.free_blocks.append(page)

    def batched_free(self, pages):
        for page in pages:
            self.free_blocks.append(page)


class Objects:
    """What an engine's `allocators()` gives of a pool."""

    def __init__(self, kind):
        self.target = Pool(kind)

    def page_of(self, page):
        return page.number

    def free_pages(self):
        return len(self.target.free_blocks)


class ObjectBench:
    """Operations are numbered from 1; a request's table is told at the end of its own operation."""

    def __init__(self, kind=Page, rules=None):
        objects = Objects(kind)
        self.pool = objects.target
        shape = PoolShape("pages", PAGES, PAGE, None)
        self.ledger = Ledger((shape,), (), 2, rules, OBSERVED)
        self.watch = ObjectWatch(objects, shape, self.ledger)
        self.number = 0

    def do(self, kind, rid, call, table=None):
        """One operation; afterwards the request holds the pages `table`, None: as before."""
        self.number += 1
        self.watch.begin(Cause(self.number, kind, rid, ""), self.number * 1000)
        answer = call()
        table = answer if table is None and kind == "extend" else table
        if table is not None:
            ids = np.array([page.number for page in table], dtype=np.int64)
            self.watch.tell(EventKind.HOLD, "pages", ids, None, "", table="full")
        free = len(self.pool.free_blocks)
        self.watch.tell(EventKind.COUNTS, "pages", [PAGES, free, 0, 0], None, "end")
        self.ledger.settle(self.number, self.number * 1000)
        return answer

    def lend(self, rid, count):
        return self.do("extend", rid, lambda: self.pool.batched_allocate(count))

    def end(self, rid, pages, again=()):
        """The request ends and gives its pages up, those in `again` once more."""

        def give_up():
            for page in [*pages, *again]:
                page.ref_count_down()

        self.do("finish", rid, give_up, [])

    def found(self):
        assert not self.ledger.crashed, self.ledger.crashed
        return dict(self.ledger.findings)

    def kept(self, rule):
        return next(finding for finding in self.ledger.kept if finding.rule == rule)
