"""An allocator under watch for the controls of the rules, and operations numbered from 1."""

from types import SimpleNamespace

import numpy as np

from allocator.hybrid_swa import HybridSWAAllocator
from stress.check.event import ALL_OBSERVATIONS, Cause, EdgeShape, Event, EventKind, PoolShape
from stress.check.shadow import Ledger
from stress.probe import watch

PAGE = 4
FULL, SWA = 64, 16
POOLS = (PoolShape("full", FULL, PAGE, 0), PoolShape("swa", SWA, PAGE, 0))
EDGES = (EdgeShape("full", "swa"),)


class Bench:
    """An allocator under watch, and operations numbered from 1."""

    def __init__(
        self, allocator=None, level=2, rules=None, release="unpatched", short_cuts=True, on_finding=None
    ):
        self.allocator = allocator or HybridSWAAllocator(FULL * PAGE, SWA * PAGE, PAGE, release=release)
        seen = ALL_OBSERVATIONS - {"references"}  # this allocator's pages are not shared by count
        named = {"observes": seen, "on_finding": on_finding, "short_cuts": short_cuts}
        self.ledger = Ledger(POOLS, EDGES, level, rules, **named)
        self.watch = watch(self.allocator, POOLS, EDGES, self.ledger)
        self.number = 0

    def do(self, kind, rid, call, step=""):
        self.number += 1
        self.watch.engine = SimpleNamespace(step=step)
        self.watch.begin(Cause(self.number, kind, rid, ""), self.number * 1000)
        try:
            return call()
        finally:
            self.watch.end()

    def lend(self, rid, pages):
        return self.do("extend", rid, lambda: self.allocator.alloc(pages * PAGE), "prompt")

    def load(self, rid, pages):
        return self.do(
            "admit", rid, lambda: self.allocator.full_attn_allocator.alloc(pages * PAGE), "linker load"
        )

    def free(self, rid, slots):
        return self.do("finish", rid, lambda: self.allocator.free_segment(slots, start_pos=0), "release")

    def tell(self, kind, pool, pages, peers=None, rid=-1, method="told", operation_kind="extend", token=-1):
        """An event that the allocator alone does not make."""
        ids = np.array(pages, dtype=np.int64)
        peers = None if peers is None else np.array(peers, dtype=np.int64)
        cause = Cause(self.number, operation_kind, rid, "")
        self.ledger.observe(Event(kind, pool, ids, peers, cause, 99, method, self.number * 1000, token))

    def settle(self):
        self.ledger.settle(self.number, self.number * 1000)

    def only(self, rule):
        """The one finding kept; there must be no other rule."""
        assert self.ledger.crashed == ""
        assert list(self.ledger.findings) == [rule], self.ledger.findings
        return self.ledger.kept[0]

    def clean(self):
        assert self.ledger.crashed == ""
        assert self.ledger.findings == {}, self.ledger.kept


def loaded_and_freed(bench, live_pages):
    """A prefix of 4 pages without peers is loaded, and its window released in a result group."""
    if live_pages:
        bench.lend(1, live_pages)
    slots = bench.load(4, 4)
    bench.do("results_begin", -1, bench.allocator.free_group_begin)
    release = lambda: bench.allocator.free_swa_segment(slots, start_pos=0)  # noqa: E731
    bench.do("checkpoint", 4, release, "window")
    checkpoint = bench.number
    bench.do("results_end", -1, bench.allocator.free_group_end)
    return checkpoint


def hold(bench, rid, pages, kind="extend"):
    bench.tell(EventKind.HOLD, "full", pages, rid=rid, method="", operation_kind=kind)
    bench.settle()


def accounts(bench, kind, rid, evictable, protected, method="end"):
    pages = [FULL, bench.allocator.full_available_size() // PAGE, evictable, protected]
    bench.tell(EventKind.COUNTS, "full", pages, rid=rid, operation_kind=kind, method=method)
    bench.settle()


def sweep(bench):
    for name, pool in (
        ("full", bench.allocator.full_attn_allocator),
        ("swa", bench.allocator.swa_attn_allocator),
    ):
        bench.tell(EventKind.FREE_LIST, name, pool.get_all_free_pages().tolist(), method="sweep")
    pages = np.arange(1, FULL + 1)
    peers = bench.allocator.full_to_swa_index_mapping.numpy()[pages * PAGE] // PAGE
    bench.tell(EventKind.MAP, "swa", pages, peers, method="sweep")
    bench.settle()
