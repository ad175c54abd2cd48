"""The direct linker, one promise a test."""

from __future__ import annotations

import numpy as np
import pytest

from linker.contract import Completion
from linker.direct import DirectLinker
from linker.store import MemoryStore

DELAY_US = 5_000


def keys_of(*values: int) -> np.ndarray:
    return np.array(values, dtype=np.int64)


def linker_over(store: MemoryStore, **settings) -> DirectLinker:
    return DirectLinker(store, **{"skips_swa": True, "delay_us": DELAY_US, **settings})


def warm_store(*values: int) -> MemoryStore:
    store = MemoryStore()
    store.warm(keys_of(*values))
    return store


# Transfers


def test_load_completes_at_its_due_time():
    linker = linker_over(warm_store(1, 2))
    assert linker.load(4, keys_of(1, 2), keys_of(8, 9), now_us=100) == (1, 100 + DELAY_US)
    assert linker.in_flight() == (1, 0)
    assert linker.pages_of(1).tolist() == [8, 9]
    assert linker.poll(100 + DELAY_US - 1) == []
    assert linker.poll(100 + DELAY_US) == [Completion(1, "load", 4, 2, True, 100 + DELAY_US)]
    assert linker.in_flight() == (0, 0)
    assert linker.pages_of(1).tolist() == []
    assert linker.poll(10**9) == []


def test_transfer_keeps_its_pages_when_the_caller_reuses_the_array():
    linker = linker_over(warm_store(1))
    loaded, offloaded = keys_of(8), keys_of(9)
    load, _ = linker.load(0, keys_of(1), loaded, now_us=0)
    offload = linker.offload(0, keys_of(2), offloaded, now_us=0)
    loaded[:] = offloaded[:] = 77
    assert (linker.pages_of(load).tolist(), linker.pages_of(offload).tolist()) == ([8], [9])


def test_bandwidth_adds_the_size_rounded_up():
    linker = linker_over(warm_store(1, 2), pages_per_ms=3)
    assert linker.load(0, keys_of(1), keys_of(1), now_us=0)[1] == DELAY_US + 334
    assert linker.load(0, keys_of(1, 2), keys_of(1, 2), now_us=0)[1] == DELAY_US + 667


def test_completions_come_by_due_time_then_ticket():
    linker = linker_over(warm_store(1, 2), pages_per_ms=1)
    long, _ = linker.load(0, keys_of(1, 2), keys_of(1, 2), now_us=0)
    short, _ = linker.load(0, keys_of(1), keys_of(3), now_us=0)
    equal, _ = linker.load(0, keys_of(1), keys_of(4), now_us=1_000)
    assert [done.ticket for done in linker.poll(10**9)] == [short, long, equal]


def test_offloaded_page_is_visible_from_the_poll_that_reports_it():
    linker = linker_over(MemoryStore())
    ticket = linker.offload(7, keys_of(1, 2), keys_of(5, 6), now_us=0)
    assert linker.lookup(keys_of(1, 2)) == 0
    assert linker.next_due_us() == DELAY_US
    linker.poll(DELAY_US - 1)
    assert linker.lookup(keys_of(1, 2)) == 0
    assert linker.poll(DELAY_US) == [Completion(ticket, "offload", 7, 2, True, DELAY_US)]
    assert linker.lookup(keys_of(1, 2)) == 2


def test_offload_sends_only_what_is_neither_stored_nor_on_its_way():
    linker = linker_over(warm_store(1))
    first = linker.offload(0, keys_of(1, 2, 3), keys_of(11, 12, 13), now_us=0)
    second = linker.offload(0, keys_of(1, 2, 3, 4), keys_of(21, 22, 23, 24), now_us=0)
    assert linker.pages_of(first).tolist() == [12, 13]
    assert linker.pages_of(second).tolist() == [24]
    assert linker.offload(0, keys_of(1, 2, 3, 4), keys_of(31, 32, 33, 34), now_us=0) is None
    assert linker.offload(0, keys_of(), keys_of(), now_us=0) is None
    assert [done.pages for done in linker.poll(DELAY_US)] == [2, 1]


def test_cancelled_offload_stores_nothing_and_may_be_sent_again():
    linker = linker_over(MemoryStore())
    ticket = linker.offload(0, keys_of(1), keys_of(5), now_us=0)
    assert linker.cancel(ticket)
    assert not linker.cancel(ticket)
    assert linker.in_flight() == (0, 0)
    assert linker.next_due_us() is None
    assert linker.poll(10**9) == []
    assert linker.lookup(keys_of(1)) == 0
    assert linker.offload(0, keys_of(1), keys_of(6), now_us=10**9) == ticket + 1


def test_a_completed_or_unknown_transfer_can_not_be_cancelled():
    linker = linker_over(warm_store(1))
    ticket, due_us = linker.load(0, keys_of(1), keys_of(5), now_us=0)
    linker.poll(due_us)
    assert not linker.cancel(ticket)
    assert not linker.cancel(99)


def test_linker_that_restores_swa_sends_a_page_again_for_its_swa_part():
    linker = linker_over(MemoryStore(), skips_swa=False)
    linker.offload(0, keys_of(1, 2), keys_of(5, 6), 0, swa=np.array([False, True]))
    linker.poll(DELAY_US)
    assert linker.swa_stored(keys_of(1, 2, 3)).tolist() == [False, True, False]
    again = linker.offload(0, keys_of(1, 2), keys_of(5, 6), DELAY_US, swa=np.array([True, True]))
    assert linker.pages_of(again).tolist() == [5]
    assert linker.swa_stored(keys_of(1)).tolist() == [False]
    linker.poll(2 * DELAY_US)
    assert linker.swa_stored(keys_of(1, 2)).tolist() == [True, True]
    assert linker.offload(0, keys_of(1, 2), keys_of(5, 6), 2 * DELAY_US) is None


def test_linker_that_skips_swa_can_restore_none():
    store = MemoryStore()
    store.warm(keys_of(1), swa=True)
    assert linker_over(store).swa_stored(keys_of(1)).tolist() == [False]
    assert linker_over(store, skips_swa=False).swa_stored(keys_of(1)).tolist() == [True]


# Mistakes of the caller

MISTAKES = {
    "load of an unknown page": (
        lambda it: it.load(4, keys_of(1, 2), keys_of(8, 9), 0),
        "page key 2 .* is not stored; load only what",
    ),
    "load of nothing": (lambda it: it.load(4, keys_of(), keys_of(), 0), "no keys"),
    "pages and keys differ": (lambda it: it.load(4, keys_of(1), keys_of(8, 9), 0), "1 keys for 2 pages"),
    "keys as floats": (
        lambda it: it.offload(4, np.array([1.0]), keys_of(8), 0),
        r"page keys are float64\[1\]",
    ),
    "keys as a list": (lambda it: it.offload(4, [1], keys_of(8), 0), "page keys are list"),
    "key that can't be stored": (lambda it: it.offload(4, keys_of(3, 0), keys_of(8, 9), 0), "page key 0"),
    "swa although skipped": (
        lambda it: it.offload(4, keys_of(3), keys_of(8), 0, swa=np.array([True])),
        "leave swa out",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistake_of_the_caller_changes_nothing(mistake):
    call, says = MISTAKES[mistake]
    linker = linker_over(warm_store(1))
    with pytest.raises(ValueError, match=says) as refused:
        call(linker)
    assert "\n" not in str(refused.value)
    assert linker.in_flight() == (0, 0)
    assert linker.offload(0, keys_of(3), keys_of(8), 0) == 1, "no key was left on its way"


def test_swa_of_another_length_is_refused():
    linker = linker_over(MemoryStore(), skips_swa=False)
    with pytest.raises(ValueError, match=r"give swa as bool\[2\]"):
        linker.offload(0, keys_of(1, 2), keys_of(5, 6), 0, swa=np.array([True]))


@pytest.mark.parametrize("settings", [{"delay_us": -1}, {"pages_per_ms": 0}])
def test_impossible_timing_is_refused(settings):
    with pytest.raises(ValueError, match=next(iter(settings))):
        linker_over(MemoryStore(), **settings)
