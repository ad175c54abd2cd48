"""The probe of an engine: it reads rows, counts and sweeps, and judges no more than the engine lets it observe."""

import numpy as np
import torch
from probe_bench import EDGES, PAGE, POOLS, hybrid

from stress.check.shadow import Ledger
from stress.operation import Kind, Operation
from stress.probe import Probe


class TinyEngine:
    """One pool pair, rows without a prefix cache."""

    observes = frozenset(
        {"lends", "returns", "mapping", "groups", "tables", "cache", "counts", "drain", "owners"}
    )
    step = ""

    def __init__(self):
        self.allocator = hybrid("filter-per-group")
        self.pools, self.edges = POOLS, EDGES
        self.rows = {}
        self.kept = np.empty(0, dtype=np.int64)

    def allocators(self):
        return self.allocator

    def table(self, rid):
        return self.rows.get(rid, self.kept[:0])

    def cached_pages(self):
        return self.kept

    def counts(self):
        full, swa = self.allocator.full_available_size() // PAGE, self.allocator.swa_available_size() // PAGE
        return {"full": (32, full, len(self.kept), 0), "swa": (16, swa, len(self.kept), 0)}

    def kept_of(self, rid):
        return (0, 0, int(rid in self.rows))

    def leftover(self):
        return (0, 0, 0, 0, len(self.rows))

    def extend(self, rid, pages):
        slots = self.allocator.alloc(pages * PAGE)
        self.rows[rid] = slots.numpy()[::PAGE] // PAGE

    def finish(self, rid, keep=0, forget=0):
        pages = self.rows.pop(rid)
        self.kept = np.concatenate((self.kept, pages[:keep]))
        given = pages[keep : len(pages) - forget]
        slots = torch.from_numpy((given[:, None] * PAGE + np.arange(PAGE)).ravel())
        self.allocator.free_segment(slots, start_pos=keep * PAGE)


def served(engine, *verbs):
    ledger = Ledger(engine.pools, engine.edges, 2)
    probe = Probe(engine, ledger)
    for number, (kind, rid, call) in enumerate(verbs, 1):
        probe.begin(Operation(number, kind, number * 10, ((rid, 0),)))
        call()
        probe.end()
        probe.sweep()
    return ledger, probe


def test_the_probe_of_an_engine_reads_rows_counts_and_sweeps():
    engine = TinyEngine()
    ledger, probe = served(
        engine,
        (Kind.EXTEND, 1, lambda: engine.extend(1, 4)),
        (Kind.EXTEND, 2, lambda: engine.extend(2, 2)),
        (Kind.FINISH, 1, lambda: engine.finish(1, keep=3)),
        (Kind.ABORT, 2, lambda: engine.finish(2)),
    )
    assert ledger.findings == {} and ledger.crashed == ""
    assert ledger.shadow.pools["full"].lent == 3 and not ledger.shadow.tables
    probe.quiesce()
    assert ledger.findings == {"I20": 6}


def test_the_probe_of_an_engine_sees_a_tail_that_stays():
    engine = TinyEngine()
    ledger, _ = served(
        engine,
        (Kind.EXTEND, 1, lambda: engine.extend(1, 4)),
        (Kind.FINISH, 1, lambda: engine.finish(1, keep=2, forget=1)),
    )
    finding = ledger.first
    assert (finding.rule, finding.operation, finding.page) == ("I6", 2, 4)


def test_the_probe_limits_the_ledger_to_what_the_engine_observes():
    engine = TinyEngine()
    engine.observes = frozenset({"lends", "returns", "counts"})
    ledger, _ = served(engine, (Kind.EXTEND, 1, lambda: engine.extend(1, 4)))
    assert ledger.rules_watched == ["I1", "I2", "I3", "I13"]
    assert ledger.findings == {}


def test_the_probe_of_an_engine_asks_what_is_kept_of_a_request_that_has_ended():
    engine = TinyEngine()
    ledger, _ = served(engine, (Kind.EXTEND, 5, lambda: engine.extend(5, 3)), (Kind.ABORT, 5, lambda: None))
    finding = next(one for one in ledger.kept if one.rule == "I20")
    assert finding.operation == 2
    assert finding.message.startswith("left of request 5 after abort of request 5: 1 row")
