"""The direct linker and its stores, one promise a test."""

from __future__ import annotations

import numpy as np
import pytest

from linker.contract import Completion
from linker.direct import DirectLinker
from linker.key_table import KeyTable
from linker.store import MemoryStore, SharedStore

DELAY_US = 5_000


def keys_of(*values: int) -> np.ndarray:
    return np.array(values, dtype=np.int64)


def linker_over(store: MemoryStore, **settings) -> DirectLinker:
    return DirectLinker(store, **{"skips_swa": True, "delay_us": DELAY_US, **settings})


def warm_store(*values: int) -> MemoryStore:
    store = MemoryStore()
    store.warm(keys_of(*values))
    return store


# Key table


@pytest.mark.parametrize(
    "keys",
    [
        np.arange(1, 20_001, dtype=np.int64),
        np.arange(1, 20_001, dtype=np.int64) << 40,
        ((np.arange(20_000, dtype=np.int64) // 500 + 1) << 32) + np.arange(20_000, dtype=np.int64) % 500,
        np.random.Generator(np.random.Philox(7)).integers(1, 2**63 - 1, 20_000, dtype=np.int64),
    ],
    ids=["consecutive", "high bits", "trace and block", "mixed"],
)
def test_key_table_agrees_with_a_set(keys):
    held, absent = keys[::2], keys[1::2]
    table = KeyTable()
    for part in np.array_split(held, 17):  # grows several times
        assert len(table.add(part)) == len(part)
    assert len(table) == len(held)
    assert table.contains(held).all()
    assert not table.contains(absent).any()
    assert table.contains(keys).tolist() == [True, False] * (len(keys) // 2)


def test_key_table_adds_each_key_once_and_returns_what_is_new():
    table = KeyTable()
    assert table.add(keys_of(9, 4, 9)).tolist() == [4, 9]
    assert table.add(keys_of(4, 7)).tolist() == [7]
    assert len(table) == 3


def test_key_table_colliding_keys_are_all_found():
    """Keys of one home slot in a table of the smallest size: the probe goes beyond its first round."""
    table = KeyTable()
    candidates = np.arange(1, 5_000, dtype=np.int64)
    homes = table._home(candidates)
    same_home = candidates[homes == homes[0]][:24]
    table.add(same_home[:20])
    assert table.contains(same_home).tolist() == [True] * 20 + [False] * 4


def test_key_that_marks_an_empty_slot_is_never_held():
    table = KeyTable()
    assert not table.contains(keys_of(0, -1, -(2**63))).any()
    table.add(keys_of(5))
    with pytest.raises(ValueError, match="page key 0 can't be stored"):
        table.add(keys_of(6, 0))
    assert not table.contains(keys_of(6)).any()


def test_leading_stops_at_the_first_key_that_is_not_held():
    store = warm_store(1, 2, 4)
    assert store.contains_prefix(keys_of(1, 2, 3, 4)) == 2
    assert store.contains_prefix(keys_of(3, 1)) == 0
    assert store.contains_prefix(keys_of(4, 2, 1)) == 3
    assert store.contains_prefix(keys_of()) == 0


# Stores


def test_shared_store_additions_travel_in_exchanges():
    here, there = SharedStore(), SharedStore()
    here.add(keys_of(11, 12))
    assert here.contains_prefix(keys_of(11, 12)) == 2
    assert there.contains_prefix(keys_of(11, 12)) == 0
    news = here.exchange()
    assert len(news) == 16
    there.learn(news)
    assert there.contains_prefix(keys_of(11, 12)) == 2
    assert here.exchange() == b"", "news goes out once"
    assert there.exchange() == b"", "what was learnt is not passed on"


def test_warm_pages_and_known_pages_are_no_news():
    store = SharedStore()
    store.warm(keys_of(1, 2))
    store.add(keys_of(1, 2, 3))
    assert np.frombuffer(store.exchange(), "<i8").tolist() == [3]


def test_news_tells_which_pages_have_swa():
    here, there = SharedStore(), SharedStore()
    here.add(keys_of(1, 2, 3), np.array([True, False, False]))
    there.learn(here.exchange())
    assert there.swa_stored(keys_of(1, 2, 3)).tolist() == [True, False, False]
    here.add(keys_of(2), np.array([True]))  # stored before, now with its SWA part
    there.learn(here.exchange())
    assert there.swa_stored(keys_of(1, 2, 3)).tolist() == [True, True, False]
    assert len(there) == 3


@pytest.mark.parametrize(
    ("news", "says"),
    [
        (b"\x01" * 15, "15 bytes, no multiple of 8"),
        (np.array([5, 0], "<i8").tobytes(), "holds 0 at byte 8"),
        (np.array([-(2**63)], "<i8").tobytes(), "holds -9223372036854775808 at byte 0"),
    ],
    ids=["cut", "zero", "no negative"],
)
def test_malformed_news_is_refused_whole_with_one_line(news, says):
    store = SharedStore()
    with pytest.raises(ValueError, match=says) as refused:
        store.learn(news)
    assert "\n" not in str(refused.value)
    assert len(store) == 0


def test_memory_store_has_no_news_and_takes_none():
    store = warm_store(1)
    store.add(keys_of(2))
    assert store.exchange() == b""
    store.learn(b"")
    with pytest.raises(ValueError, match=r"set linker\.store to 'shared'"):
        store.learn(np.array([3], "<i8").tobytes())


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
