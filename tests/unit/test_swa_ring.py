"""The per-request SWA ring: rows are lent once, and content counts under one generation only."""

from __future__ import annotations

import numpy as np
import pytest

from allocator.swa_ring import FREE_GENERATION, SWARing


def test_a_row_is_lent_once_and_reuse_bumps_its_generation() -> None:
    ring = SWARing(rows=2, ring_tokens=6, page_size=4)
    first, second = ring.acquire("a"), ring.acquire("b")
    assert {first.row, second.row} == {1, 2} and ring.available_size() == 0
    ring.release(first)
    assert ring.owner(first.row) is None and ring.generation(first.row) == FREE_GENERATION
    again = ring.acquire("c")
    assert again == (first.row, first.generation + 1) and ring.owner(again.row) == "c"


def test_a_row_costs_whole_pages() -> None:
    ring = SWARing(rows=3, ring_tokens=6, page_size=4)
    assert (ring.row_tokens, ring.available_size(), ring.free_rows()) == (8, 24, 3)
    ring.acquire("a")
    assert (ring.available_size(), ring.free_rows()) == (16, 2)


def test_positions_wrap_and_rows_do_not_overlap() -> None:
    ring = SWARing(rows=2, ring_tokens=6, page_size=4)
    assert [ring.slot(pos) for pos in (0, 5, 6, 13)] == [0, 5, 0, 1]
    assert ring.slots(2, np.arange(4, 8)).tolist() == [20, 21, 16, 17]
    assert set(ring.slots(1, np.arange(30)).tolist()) == set(range(8, 14))


def test_only_the_last_ring_of_positions_is_valid() -> None:
    ring = SWARing(rows=1, ring_tokens=4, page_size=4)
    row, generation = ring.acquire("a")
    assert [pos for pos in range(-1, 12) if ring.valid(row, generation, pos, 10)] == [6, 7, 8, 9]
    assert [pos for pos in range(-1, 12) if ring.valid(row, generation, pos, 2)] == [0, 1]


def test_what_a_prefix_hit_did_not_write_is_not_valid() -> None:
    """sgl-project/sglang#30339: the hit's window still holds the last owner's tokens."""
    ring = SWARing(rows=1, ring_tokens=4, page_size=4)
    ring.release(ring.acquire("before"))
    row, generation = ring.acquire("hit of 8", written_from=8)
    assert not ring.valid(row, generation, 7, 9)
    assert ring.valid(row, generation, 8, 9)


def test_a_stale_generation_is_not_valid() -> None:
    ring = SWARing(rows=1, ring_tokens=4, page_size=4)
    stale = ring.acquire("a")
    assert ring.valid(*stale, 0, 1)
    ring.release(stale)
    assert not ring.valid(*stale, 0, 1) and not ring.valid(stale.row, FREE_GENERATION, 0, 1)
    current = ring.acquire("b")
    assert not ring.valid(*stale, 0, 1) and ring.valid(*current, 0, 1)


def test_wrong_calls_say_what_to_do() -> None:
    ring = SWARing(rows=1, ring_tokens=4, page_size=4)
    lent = ring.acquire("a")
    with pytest.raises(ValueError, match="all 1 ring rows are lent"):
        ring.acquire("b")
    ring.release(lent)
    with pytest.raises(ValueError, match="release it once"):
        ring.release(lent)
    ring.acquire("c")
    with pytest.raises(ValueError, match="release it once"):
        ring.release(lent)
    assert ring.owner(lent.row) == "c", "a stale release takes nothing from the next owner"
    with pytest.raises(ValueError, match="written_from is -1"):
        ring.acquire("d", written_from=-1)
    with pytest.raises(ValueError, match="page_size is 0"):
        SWARing(rows=1, ring_tokens=4, page_size=0)


def test_a_row_is_whole_pages_and_says_whether_it_has_been_used() -> None:
    ring = SWARing(rows=2, ring_tokens=6, page_size=4)
    assert ring.pages_of(2).tolist() == [4, 5], "row 0 is padding"
    assert sorted(ring.get_all_free_pages().tolist()) == [2, 3, 4, 5]
    assert not ring.next_row_is_used()
    lent = ring.acquire("a", written_from=5)
    assert (ring.get_all_free_pages().tolist(), ring.written_from(lent.row)) == ([4, 5], 5)
    assert not ring.next_row_is_used(), "row 2 is next, and nobody has had it"
    ring.release(lent)
    assert ring.next_row_is_used()
