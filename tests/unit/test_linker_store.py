"""The page stores of the linker and their key table."""

from __future__ import annotations

import numpy as np
import pytest

from linker.key_table import KeyTable
from linker.store import MemoryStore, SharedStore


def keys_of(*values: int) -> np.ndarray:
    return np.array(values, dtype=np.int64)


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
    store = MemoryStore()
    store.warm(keys_of(1, 2, 4))
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
    store = MemoryStore()
    store.add(keys_of(2))
    assert store.exchange() == b""
    store.learn(b"")
    with pytest.raises(ValueError, match=r"set linker\.store to 'shared'"):
        store.learn(np.array([3], "<i8").tobytes())
