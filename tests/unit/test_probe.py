"""The probe tells what happened and changes nothing; the device path waits for nothing."""

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from allocator.hybrid_swa import HybridSWAAllocator
from allocator.page_pool import PagePool
from stress.check.event import Cause, EdgeShape, EventKind, PoolShape
from stress.check.shadow import Ledger
from stress.operation import Kind, Operation
from stress.probe import Probe, Watch, watch
from stress.probe.capture import DeviceReader
from stress.probe.lent_pages import page_starts_of_decode, page_starts_of_extend

PAGE = 4
POOLS = (PoolShape("full", 32, PAGE, 0), PoolShape("swa", 16, PAGE, 0))
EDGES = (EdgeShape("full", "swa"),)


class Log(Ledger):
    """A ledger that keeps the events."""

    def __init__(self, level=1, **options):
        super().__init__(POOLS, EDGES, level, **options)
        self.seen = []
        self.listen(self.seen.append)

    def told(self, *kinds):
        return [(e.kind.value, e.pool, e.pages.tolist()) for e in self.seen if e.kind in kinds]


def hybrid(release="unpatched"):
    return HybridSWAAllocator(32 * PAGE, 16 * PAGE, PAGE, release=release)


def extend(allocator, rows, last):
    prefix, seq = (torch.tensor(lens) for lens in zip(*rows, strict=True))
    tokens = sum(hi - lo for lo, hi in rows)
    return allocator.alloc_extend(prefix, prefix, seq, seq, torch.tensor(last), tokens)


def test_lends_are_read_from_the_answer():
    allocator, log = hybrid(), Log()
    watch(allocator, POOLS, EDGES, log)
    slots = extend(allocator, [(0, 6), (0, 4), (0, 1)], [-1, -1, -1])
    assert log.told(EventKind.LEND) == [("lend", "full", [1, 2, 3, 4]), ("lend", "swa", [1, 2, 3, 4])]
    extend(allocator, [(6, 13), (4, 5)], [int(slots[5]), int(slots[9])])
    assert log.told(EventKind.LEND)[2:] == [("lend", "full", [5, 6, 7]), ("lend", "swa", [5, 6, 7])]
    lens = torch.tensor([2, 9])
    allocator.alloc_decode(lens, lens, torch.tensor([int(slots[10]), 27]))
    assert log.told(EventKind.LEND)[4:] == [("lend", "full", [8]), ("lend", "swa", [8])]
    allocator.full_attn_allocator.alloc(2 * PAGE)
    assert log.told(EventKind.LEND)[6:] == [("lend", "full", [9, 10])]
    assert log.findings == {} and log.crashed == ""


@pytest.mark.parametrize("page_size", [1, 4, 16])
def test_page_starts_agree_with_counting_tokens(page_size):
    state = 7
    for _ in range(200):
        rows = []
        for _ in range(state % 5 + 1):
            state = (state * 1103515245 + 12345) % (1 << 31)
            prefix = state % (3 * page_size)
            rows.append((prefix, prefix + (state >> 8) % (4 * page_size)))
        prefix, seq = np.array(rows).T
        expected, at = [], 0
        for lo, hi in rows:
            expected += [at + position - lo for position in range(lo, hi) if position % page_size == 0]
            at += hi - lo
        answer = np.arange(at)
        assert answer[page_starts_of_extend(prefix, seq, page_size)].tolist() == expected
    assert page_starts_of_decode(np.array([1, 4, 5, 9]), 4).tolist() == [0, 2, 3]


def test_a_free_tells_intent_then_return_then_mapping():
    allocator, log = hybrid(), Log()
    slots = allocator.alloc(3 * PAGE)
    watch(allocator, POOLS, EDGES, log)
    log.limit_to(())
    allocator.free_segment(slots[1:], start_pos=1)
    kinds = [(e.kind.value, e.pool, e.pages.tolist(), e.method) for e in log.seen]
    assert kinds == [
        ("intent", "swa", [1, 2, 3], "free_segment"),
        ("intent", "full", [1, 2, 3], "free_segment"),
        ("return", "swa", [1, 2, 3], "free_page_ids"),
        ("return", "full", [1, 2, 3], "free_segment"),
        ("map", "swa", [1, 2, 3], "free_segment"),
    ]
    assert [e.peers.tolist() for e in log.seen if e.peers is not None] == [[1, 2, 3], [0, 0, 0]]
    assert {e.call for e in log.seen} == {1}


@pytest.mark.parametrize("name", ["free", "free_swa", "free_full"])
def test_set_shaped_frees_name_each_page_once(name):
    allocator, log = hybrid(), Log()
    watch(allocator, POOLS, EDGES, log)
    slots = allocator.alloc(4 * PAGE)
    chosen = slots[torch.tensor([9, 1, 2, 8, 0])]
    if name == "free_full":
        allocator.free_swa(chosen)
    getattr(allocator, name)(chosen)
    intents = [e.pages.tolist() for e in log.seen if e.kind is EventKind.INTENT and e.method == name]
    assert intents and all(pages == [3, 1] for pages in intents)
    assert log.findings == {} and log.crashed == ""


@pytest.mark.parametrize("outer", [True, False])
def test_a_free_is_understood_however_its_arguments_are_passed(outer):
    allocator, log = hybrid(), Log()
    watch(allocator, POOLS, EDGES, log)
    if outer:
        allocator.free_swa(indices=allocator.alloc(2 * PAGE))
        assert log.told(EventKind.INTENT) == [("intent", "swa", [1, 2])]
    else:
        allocator.full_attn_allocator.free(indices=allocator.full_attn_allocator.alloc(2 * PAGE))
        assert log.told(EventKind.INTENT) == [("intent", "full", [1, 2])]
    assert log.findings == {} and log.crashed == ""


def test_what_was_seen_is_told_when_the_target_asserts():
    allocator, log = hybrid(), Log()
    seen = watch(allocator, POOLS, EDGES, log)
    slots = allocator.full_attn_allocator.alloc(4 * PAGE)
    allocator.free_group_begin()
    allocator.free_swa_segment(slots, start_pos=0)
    with pytest.raises(AssertionError):
        allocator.free_group_end()
    assert log.told(EventKind.RETURN) == [("return", "swa", [0, 0, 0, 0])]
    assert log.told(EventKind.GROUP_END) == [("group_end", "full", []), ("group_end", "swa", [])]
    assert seen.raised and log.findings == {"I1": 4}


def test_events_are_copies():
    allocator, log = hybrid(), Log()
    watch(allocator, POOLS, EDGES, log)
    slots = allocator.alloc(2 * PAGE)
    allocator.free_segment(slots, start_pos=0)
    before = [(e.pages.copy(), None if e.peers is None else e.peers.copy()) for e in log.seen]
    slots.zero_()
    allocator.full_attn_allocator.free_pages.zero_()
    allocator.full_to_swa_index_mapping.fill_(99)
    for event, (pages, peers) in zip(log.seen, before, strict=True):
        assert (event.pages == pages).all() and (peers is None or (event.peers == peers).all())


def trace(allocator):
    """A fixed walk through every method; what the target answered and holds afterwards."""
    seen = []
    slots = allocator.alloc(3 * PAGE)
    seen.append(slots.tolist())
    seen.append(extend(allocator, [(0, 6), (0, 3)], [-1, -1]).tolist())
    seen.append(allocator.alloc(1000 * PAGE))
    allocator.free_group_begin()
    allocator.free_swa_segment(slots[: 2 * PAGE], start_pos=0)
    allocator.free_full(slots[: 2 * PAGE])
    allocator.free_group_end()
    allocator.free(slots[2 * PAGE :])
    seen.append(allocator.full_attn_allocator.get_all_free_pages().tolist())
    seen.append(allocator.swa_attn_allocator.get_all_free_pages().tolist())
    seen.append(allocator.full_to_swa_index_mapping.tolist())
    return seen


def test_a_watched_target_answers_the_same_and_is_given_back_whole():
    bare, watched, log = hybrid(), hybrid(), Log(level=3)
    names = dict(vars(watched)), dict(vars(watched.full_attn_allocator))
    on = watch(watched, POOLS, EDGES, log)
    assert trace(watched) == trace(bare)
    assert log.findings == {} and log.crashed == "" and on.events > 20
    on.unwatch()
    assert (vars(watched).keys(), vars(watched.full_attn_allocator).keys()) == tuple(n.keys() for n in names)


def test_a_single_pool_is_watched_too():
    pool = PagePool(16 * PAGE, PAGE)
    ledger = Ledger(POOLS[1:], (), 2)
    on = watch(pool, POOLS[1:], (), ledger)
    slots = pool.alloc(4 * PAGE)
    pool.free_group_begin()
    pool.free_segment(slots[: 2 * PAGE], start_pos=0)
    pool.free_group_end()
    on.end()
    assert ledger.findings == {} and ledger.shadow.pools["swa"].lent == 2
    pool.free_page_ids(torch.tensor([0, 1]))
    on.end()
    assert ledger.findings == {"I1": 1, "I3": 1}


class NoWaiting(TorchDispatchMode):
    """Refuses what waits for a device: reads of values, and shapes that depend on them."""

    WAITS = ("_local_scalar_dense", "nonzero", "unique", "masked_select", "is_nonzero", "equal", "bincount")

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.name().removeprefix("aten::")
        if name.startswith(self.WAITS) or (name.startswith("index.") and self._masked(args)):
            raise AssertionError(f"{name} waits for the device")
        return func(*args, **(kwargs or {}))

    def _masked(self, args):
        return any(index is not None and index.dtype == torch.bool for index in args[1])


def deferred_run(mode):
    """The silent case of the bug, with the events held back until the end of each step."""
    allocator = hybrid()
    ledger = Ledger(POOLS, EDGES, 1)
    on = Watch(allocator, POOLS, EDGES, ledger, DeviceReader())
    with mode:
        on.begin(Cause(1, "extend", 1, ""), 10)
        extend(allocator, [(0, 6 * PAGE + 1)], [-1])
        on.begin(Cause(2, "admit", 4, ""), 20)
        loaded = allocator.full_attn_allocator.alloc(4 * PAGE)
        on.begin(Cause(3, "checkpoint", 4, ""), 30)
        allocator.free_group_begin()
        allocator.free_swa_segment(loaded, start_pos=0)
        on.begin(Cause(4, "results_end", -1, ""), 40)
        allocator.free_group_end()
    assert ledger.events == 0
    on.land()
    ledger.settle(4, 40)
    return ledger


def test_the_device_path_waits_for_nothing_and_finds_the_same():
    ledger = deferred_run(NoWaiting())
    assert ledger.crashed == "" and ledger.findings == {"I1": 4}
    finding = ledger.first
    assert (finding.operation, finding.noticed, finding.page) == (3, 4, 0)
    assert finding.history[0] == "2 lent full page 8 to request 4 (admit)"


def test_both_paths_tell_the_ledger_the_same():
    """Copies that land later, and ids that are looked at on the host, make no difference to what is known."""
    ledgers = []
    for reader in (None, DeviceReader()):
        ledger = Ledger(POOLS, EDGES, 1)
        allocator = hybrid("filter-per-group")
        on = Watch(allocator, POOLS, EDGES, ledger, reader)
        on.begin(Cause(1, "extend", 1, ""), 10)
        trace(allocator)
        on.begin(Cause(2, "checkpoint", 1, ""), 20)
        cached, own = allocator.full_attn_allocator.alloc(3 * PAGE), allocator.alloc(3 * PAGE)
        peers = allocator.translate_loc_from_full_to_swa(own)
        # The first page is named from its second slot on: it keeps its peer where the first slot does.
        allocator.clear_full_to_swa_mapping(own[PAGE:])
        allocator.set_full_to_swa_mapping(cached[PAGE:], peers[PAGE:])
        allocator.clear_full_to_swa_mapping(own[1:PAGE])
        on.land()
        ledger.settle(2, 20)
        ledgers.append(ledger)
    host, device = ledgers
    assert host.findings == device.findings == {} and host.crashed == device.crashed == ""
    for name in ("full", "swa"):
        assert (host.shadow.pools[name].on_loan == device.shadow.pools[name].on_loan).all()
    assert (host.shadow.edges[0].peer == device.shadow.edges[0].peer).all()
    assert host.shadow.edges[0].mapped > 3


def test_a_rule_that_the_device_path_feeds_nothing_is_not_watched():
    for reader, watched in ((None, True), (DeviceReader(), False)):
        ledger = Ledger(POOLS, EDGES, 2)
        Watch(hybrid(), POOLS, EDGES, ledger, reader)
        assert ("I8" in ledger.rules_watched) is watched
        assert "I4" in ledger.rules_watched


def test_the_refusal_of_waiting_is_a_control():
    with pytest.raises(AssertionError, match="waits for the device"), NoWaiting():
        hybrid().free_swa(torch.arange(PAGE, 2 * PAGE))


class TinyEngine:
    """One pool pair, rows without a prefix cache."""

    observes = frozenset({"lends", "returns", "mapping", "groups", "tables", "cache", "counts", "drain"})
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
