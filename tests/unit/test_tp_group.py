"""A rank's side of its attention-TP group, with a peer that is written here."""

from __future__ import annotations

import msgspec
import numpy as np
from rule_bench import EDGES, POOLS

from allocator.faults.log import FaultLog, with_faults
from linker.agreed_linker import AgreedLinker
from linker.direct import DirectLinker
from linker.store import MemoryStore
from stress.check.shadow import Ledger
from stress.config_schema import Layout
from stress.operation import Kind, Operation
from stress.payload import Payload, payload_of
from stress.step_plan import StepPlan
from stress.tp_faults import RANK_FAULTS
from stress.tp_group import TPGroup
from stress.tp_word import Collective

KEYS = np.arange(1, 5)
LAYOUT = Layout(tp_size=2, dp_size=1, exchange_ms=0)


def group_of(log=None, index=0) -> TPGroup:
    linker = AgreedLinker(DirectLinker(MemoryStore(), skips_swa=True, delay_us=5), 2, lambda: 0)
    kind = TPGroup if log is None else with_faults(TPGroup, RANK_FAULTS, log)
    return kind(LAYOUT, index, linker, lambda rid: KEYS, Ledger(POOLS, EDGES, 2))


def exchange(groups, waiting=(), now_us=0) -> list[bool]:
    words = [group.word(waiting, now_us, ended=False) for group in groups]
    return [group.hear(words, now_us) for group in groups]


def findings(groups) -> list[dict[str, int]]:
    return [group._ledger.findings for group in groups]


def test_a_waiting_request_may_be_admitted_once_both_have_told() -> None:
    groups = [group_of(index=0), group_of(index=1)]
    groups[0].agreed.own.offload(1, KEYS, KEYS, 0)
    groups[0].agreed.own.poll(5)
    assert not groups[0].may_admit(7)
    assert exchange(groups, [7], 5) == [False, False]
    assert [group.may_admit(7) for group in groups] == [True, True]
    assert [group.agreed.lookup(KEYS) for group in groups] == [0, 0], "one alone has the pages"
    assert findings(groups) == [{}, {}]


def test_an_operation_that_differs_is_told_one_exchange_later_and_ends_the_agreement() -> None:
    groups = [group_of(index=0), group_of(index=1)]
    for group, answer in zip(groups, (64, 0), strict=True):
        group.fold(Operation(1, Kind.POLL, 0, (), (1,)), (5,))
        group.fold(Operation(2, Kind.ADMIT, 3, ((4, 0),), (answer, 0)), (5,))
    assert exchange(groups) == [True, True], "nobody may end here"
    assert findings(groups) == [{}, {}]
    assert exchange(groups) == [False, False]
    assert findings(groups) == [{"I18": 1}, {"I18": 1}]
    assert [group._ledger.kept[0].operation for group in groups] == [2, 2]
    assert groups[0].alone and groups[0].may_admit(99)


def test_how_the_pools_stand_is_compared_too() -> None:
    groups = [group_of(index=0), group_of(index=1)]
    for group, free in zip(groups, (5, 6), strict=True):
        group.fold(Operation(1, Kind.POLL, 0, (), (1,)), (free,))
    exchange(groups)
    exchange(groups)
    assert findings(groups) == [{"I18": 1}, {"I18": 1}]


def test_a_rank_that_leaves_a_collective_out_ends_its_transfers_alone() -> None:
    groups = [group_of(FaultLog(["F18"]), index=0), group_of(index=1)]
    for group in groups:
        group.agreed.offload(1, KEYS, KEYS, 0)
    groups[0].agreed.own.cancel(1)
    groups[0].agreed._outer.clear()
    groups[0].agreed._verdicts[1] = 0
    exchange(groups)
    assert findings(groups) == [{"I19": 1}, {"I19": 1}]
    assert groups[0].agreed.next_due_us() is not None
    assert [completion.ok for completion in groups[0].agreed.poll(0)] == [False]
    exchange(groups, now_us=5)
    assert [completion.ok for completion in groups[1].agreed.poll(5)] == [True]
    assert [group.agreed.in_flight() for group in groups] == [(0, 0), (0, 0)]


def test_a_word_survives_its_way_and_a_cut_one_is_refused() -> None:
    group = group_of()
    word = group.word([7, 9], 0, ended=False)
    assert word.collectives == [Collective(0, 2, "step plan", 4), Collective(0, 2, "lookups", 8)]
    packed = Payload(StepPlan(1, 2, 3, 4), True, word, b"news").pack()
    told = payload_of(packed, in_groups=True)
    assert (told.plan, told.done, told.news) == (StepPlan(1, 2, 3, 4), True, b"news")
    assert msgspec.json.encode(told.word) == msgspec.json.encode(word)
    assert payload_of(b"", in_groups=True) is None
    for cut in (34, 40):
        try:
            payload_of(packed[:cut], in_groups=True)
        except ValueError as error:
            assert "payload of" in str(error)
        else:
            raise AssertionError("a cut payload was taken")
