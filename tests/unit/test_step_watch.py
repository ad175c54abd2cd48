"""What the allocations of a step promise, and what is taken back: told of a manager that is called as upstream's is."""

from types import SimpleNamespace

import numpy as np
from block_bench import OBSERVED, Pool

from stress.check.event import Cause, EventKind, PoolShape
from stress.check.shadow import Ledger
from stress.engine.groups import Group
from stress.operation import Kind
from stress.probe.block_watch import BlockWatch
from stress.probe.group_watch import GroupWatch
from stress.probe.step_watch import StepWatch

PROMISES = frozenset({EventKind.PROMISED, EventKind.WITHDRAWN})


class Manager:
    """Gives a block for each 4 tokens of a request; the wide group: see Bench."""

    def __init__(self):
        self.block_pool = Pool()
        self.tables = {}

    def get_computed_blocks(self, request):
        return SimpleNamespace(blocks=((), ())), 0

    def allocate_slots(self, request, num_new_tokens, num_new_computed_tokens=0, num_lookahead_tokens=0):
        end = request.num_computed_tokens + num_new_computed_tokens + num_new_tokens + num_lookahead_tokens
        table = self.tables.setdefault(int(request.request_id), [])
        more = -(-end // 4) - len(table)
        if more > self.block_pool.get_num_free_blocks():
            return None
        table += self.block_pool.get_new_blocks(more)
        return table

    def free(self, request):
        self.block_pool.free_blocks(reversed(self.tables.pop(int(request.request_id))))


class Bench:
    def __init__(self):
        self.manager = Manager()
        self.groups = (Group("full", 4), Group("wide", 8))
        self.changed, self.running_now, self.told, self.let_go = [], [], [], []
        shape = PoolShape("blocks", 12, 4, 0)
        self.ledger = Ledger((shape,), (), 2, None, OBSERVED)
        self.ledger.listen(self.hear, PROMISES | {EventKind.HOLD})
        self.watch = BlockWatch(self.manager, shape, ("full", "wide"), self.ledger)
        self.requests = GroupWatch(self, self.watch)
        self.steps = StepWatch(self, self.watch, self.requests, None)
        self.number = 0

    def allocators(self):
        return self.manager

    def hear(self, event):
        self.told.append((event.kind.value, event.cause.rid, event.table, np.asarray(event.pages).tolist()))

    def group_table(self, rid, group, first=0, end=None):
        """The wide group has the same blocks, its first one out of the window."""
        ids = [block.block_id for block in self.manager.tables.get(rid, ())]
        return (ids if group == "full" else [0, *ids[3::2]])[first:end]

    def committed(self, rid):
        return 0

    def running(self):
        return self.running_now

    def take_let_go(self):
        return self.let_go

    def begin(self):
        self.number += 1
        self.told = []
        self.watch.begin(Cause(self.number, "schedule", -1, ""), self.number)


def request(rid, computed=0, known=100):
    return SimpleNamespace(request_id=str(rid), num_computed_tokens=computed, num_tokens=known)


def promised(bench):
    return [told for told in bench.told if told[0] != "hold"]


def test_an_allocation_promises_the_pages_that_its_pass_fills():
    """Of each group, to their ends; a page that stays open is not one, nor is a hole."""
    bench = Bench()
    bench.begin()
    bench.manager.allocate_slots(request(7), 18)
    assert promised(bench) == [("promised", 7, "full", [1, 2, 3, 4]), ("promised", 7, "wide", [4])]
    bench.begin()
    bench.manager.allocate_slots(request(7, computed=18), 1)
    assert promised(bench) == []
    bench.begin()
    bench.manager.allocate_slots(request(7, computed=19), 1)
    assert promised(bench) == [("promised", 7, "full", [5])]


def test_drafts_and_hits_are_not_what_a_pass_fills():
    bench = Bench()
    bench.begin()
    bench.manager.allocate_slots(request(7, known=10), 10, num_lookahead_tokens=8)
    assert promised(bench) == [("promised", 7, "full", [1, 2])]
    bench.begin()
    bench.manager.allocate_slots(request(7, computed=8, known=10), 5)
    assert promised(bench) == []
    bench.begin()
    bench.manager.allocate_slots(request(8), 4, num_new_computed_tokens=4)
    assert promised(bench) == [("promised", 8, "full", [7])]


def test_a_refused_allocation_promises_nothing():
    bench = Bench()
    bench.begin()
    assert bench.manager.allocate_slots(request(7), 1000) is None
    assert promised(bench) == []


def test_a_request_takes_back_what_it_got_in_the_same_operation_alone():
    bench = Bench()
    bench.begin()
    bench.manager.allocate_slots(request(7), 4)
    bench.begin()
    bench.manager.allocate_slots(request(7, computed=4), 4)
    bench.manager.allocate_slots(request(8), 4)
    bench.manager.free(request(7, computed=4))
    assert promised(bench) == [
        ("promised", 7, "full", [2]),
        ("promised", 8, "full", [3]),
        ("withdrawn", 7, "full", [2]),
    ]
    bench.begin()
    bench.manager.free(request(8))
    assert promised(bench) == []


def test_tables_of_all_that_hold_or_held_pages_are_told():
    bench = Bench()
    bench.begin()
    bench.manager.allocate_slots(request(7), 4)
    bench.running_now = [7]
    assert bench.steps.after(Kind.SCHEDULE, (0, 7, 0, 4)) == []
    assert [told for told in bench.told if told[0] == "hold"] == [
        ("hold", 7, "full", [1]),
        ("hold", 7, "wide", [0]),
    ]
    bench.begin()
    bench.manager.free(request(7))
    bench.running_now = []
    assert bench.steps.after(Kind.UPDATE, (12, 7)) == [7]
    assert ("hold", 7, "full", []) in bench.told


def test_what_a_request_starts_with_is_told_in_its_first_step_and_again_after_a_preemption():
    bench = Bench()
    bench.steps.after(Kind.SCHEDULE, (0, 7, 8, 4, 9, 0, 4))
    assert bench.steps.take_found() == {7: 8}
    bench.steps.after(Kind.SCHEDULE, (0, 7, 12, 4))
    assert bench.steps.take_found() == {}
    bench.steps.after(Kind.SCHEDULE, (1, 7, 9, 4, 1))
    bench.steps.after(Kind.SCHEDULE, (0, 7, 4, 4))
    assert bench.steps.take_found() == {7: 4}


def test_a_table_that_is_let_go_is_told_at_once_for_it_may_be_had_again_as_it_was():
    """As a request whose load has failed: it has the same pages at the end of the operation, and has them anew."""
    bench = Bench()
    bench.begin()
    bench.manager.allocate_slots(request(7), 8)
    bench.running_now = [7]
    bench.steps.after(Kind.SCHEDULE, (0, 7, 0, 8))
    bench.begin()
    had = bench.manager.tables[7]
    bench.manager.free(request(7))
    bench.manager.tables[7] = had
    bench.steps.after(Kind.SCHEDULE, (0, 7, 0, 8))
    assert [told[3] for told in bench.told if told[:3] == ("hold", 7, "full")] == [[], [1, 2]]


def test_who_has_let_go_late_has_ended_with_an_update():
    bench = Bench()
    bench.let_go = [4]
    assert bench.steps.after(Kind.SCHEDULE, (0, 7, 0, 4)) == []
    assert bench.steps.after(Kind.UPDATE, (12, 7)) == [7, 4]
