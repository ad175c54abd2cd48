"""PagePool: which slots are lent, what is refused, and what a free puts on the list."""

import pytest
import torch

from allocator.extend_layout import count_new_pages, lay_out_extend
from allocator.page_pool import PagePool, page_representatives


def lens(*values):
    return torch.tensor(values, dtype=torch.int64)


def extend(pool, prefix, seq, last_loc, **kwargs):
    prefix, seq = lens(*prefix), lens(*seq)
    return pool.alloc_extend(prefix, prefix, seq, seq, lens(*last_loc), int((seq - prefix).sum()), **kwargs)


def free_list(pool):
    return pool.get_all_free_pages().tolist()


def test_pages_start_at_one_and_room_is_in_tokens():
    pool = PagePool(16, 4)
    assert free_list(pool) == [1, 2, 3, 4]
    assert (pool.num_pages, pool.available_size()) == (4, 16)


@pytest.mark.parametrize(
    ("size", "page_size", "cure"),
    [
        (100, 64, "give 64 for 1 pages"),
        (0, 64, "give 64"),
        (-64, 64, "give 64"),
        (64, 0, "give 1 token or more"),
    ],
)
def test_bad_sizes_are_refused_with_the_cure(size, page_size, cure):
    with pytest.raises(ValueError, match=cure):
        PagePool(size, page_size)


def test_alloc_lends_whole_pages_from_the_front():
    pool = PagePool(16, 4)
    assert pool.alloc(8).tolist() == [4, 5, 6, 7, 8, 9, 10, 11]
    assert free_list(pool) == [3, 4]


def test_alloc_without_room_changes_nothing():
    pool = PagePool(16, 4)
    pool.alloc(8)
    assert pool.alloc(12) is None
    assert free_list(pool) == [3, 4]


@pytest.mark.parametrize(("need", "cure"), [(6, "ask for 8 tokens"), (-4, "ask for 0 tokens")])
def test_alloc_of_part_of_a_page_is_refused(need, cure):
    with pytest.raises(ValueError, match=cure):
        PagePool(16, 4).alloc(need)


def test_extend_fills_the_last_page_then_opens_new_ones():
    pool = PagePool(64, 4)
    first = extend(pool, [0], [6], [-1])
    assert first.tolist() == [4, 5, 6, 7, 8, 9]
    assert extend(pool, [6], [13], [9]).tolist() == [10, 11, 12, 13, 14, 15, 16]


def test_extend_of_a_batch_keeps_request_order():
    pool = PagePool(64, 4)
    a = extend(pool, [0, 0], [3, 5], [-1, -1])
    assert a.tolist() == [4, 5, 6, 8, 9, 10, 11, 12]
    # Request 0 stays in its page, request 1 fills its page and opens page 4, request 2 starts on page 5.
    got = extend(pool, [3, 5, 0], [4, 10, 4], [6, 12, -1])
    assert got.tolist() == [7, 13, 14, 15, 16, 17, 20, 21, 22, 23]


def test_extend_without_room_changes_nothing():
    pool = PagePool(8, 4)
    extend(pool, [0], [5], [-1])
    assert extend(pool, [5], [9], [8]) is None
    assert pool.available_size() == 0
    assert extend(pool, [5], [8], [8]).tolist() == [9, 10, 11]


def test_extend_of_nothing_is_empty():
    pool = PagePool(8, 4)
    assert extend(pool, [4], [4], [7]).tolist() == []
    assert extend(pool, [], [], []).tolist() == []


def test_extend_refuses_totals_that_are_not_the_lengths():
    pool = PagePool(64, 4)
    with pytest.raises(ValueError, match="differs from the 6 tokens"):
        pool.alloc_extend(lens(0), lens(0), lens(6), lens(6), lens(-1), 7)
    with pytest.raises(ValueError, match="2 pages that the lengths need; leave it out"):
        extend(pool, [0], [6], [-1], num_new_pages=3)
    with pytest.raises(ValueError, match="request 1 of the batch has seq_len 3 < prefix_len 4"):
        extend(pool, [0, 4], [8, 3], [-1, 7])
    assert pool.available_size() == 64


def test_decode_opens_a_page_exactly_at_its_start():
    pool = PagePool(32, 4)
    extend(pool, [0, 0, 0], [3, 4, 5], [-1, -1, -1])
    seq = lens(4, 5, 6)
    # Pages 1 | 2 | 3, 4 are lent; request 1 is at a page's start and opens page 5.
    assert pool.alloc_decode(seq, seq, lens(6, 11, 16)).tolist() == [7, 20, 17]
    assert free_list(pool) == [6, 7, 8]


def test_decode_without_room_changes_nothing():
    pool = PagePool(4, 4)
    pool.alloc(4)
    seq = lens(5)
    assert pool.alloc_decode(seq, seq, lens(7)) is None
    assert free_list(pool) == []


def test_page_size_one():
    pool = PagePool(5, 1)
    assert extend(pool, [0, 0], [2, 1], [-1, -1]).tolist() == [1, 2, 3]
    seq = lens(3, 2)
    assert pool.alloc_decode(seq, seq, lens(2, 3)).tolist() == [4, 5]
    pool.free_segment(lens(1, 2, 4), start_pos=0)
    assert free_list(pool) == [1, 2, 4]


@pytest.mark.parametrize("page_size", [1, 3, 4, 16])
def test_layout_agrees_with_the_page_count(page_size):
    for prefix in range(0, 12):
        for seq in range(prefix, 36):
            layout = lay_out_extend(lens(prefix), lens(seq), page_size)
            assert layout.new_pages == count_new_pages(lens(prefix), lens(seq), page_size)
            assert layout.tokens == layout.chunks[1].sum() == seq - prefix
            assert layout.chunks[1].min() >= 0


def test_freed_pages_go_to_the_front():
    pool = PagePool(20, 4)
    slots = pool.alloc(16)
    pool.free_segment(slots[4:12], start_pos=4)
    assert free_list(pool) == [2, 3, 5]


def test_free_is_a_set_of_slots():
    pool = PagePool(20, 4)
    slots = pool.alloc(16)
    pool.free(torch.cat((slots[5:7], slots[4:6], slots[15:16])))
    assert sorted(free_list(pool)) == [2, 4, 5]


@pytest.mark.parametrize("start_pos", range(0, 9))
@pytest.mark.parametrize("count", [0, 1, 2, 3, 4, 5, 8, 11])
def test_representatives_are_one_a_page(start_pos, count):
    positions = torch.arange(start_pos, start_pos + count)
    got = page_representatives(positions, start_pos, 4) // 4
    assert got.tolist() == sorted(set((positions // 4).tolist()))


def test_free_page_ids_trusts_the_caller():
    pool = PagePool(8, 4)
    pool.alloc(8)
    pool.free_page_ids(lens(0, 2, 2, 99))
    assert free_list(pool) == [0, 2, 2, 99]
    assert pool.check_integrity() == [
        "free list holds 2 ids outside 1..2, first 0",
        "free list holds 1 pages more than once, first 2",
    ]


def test_group_piles_frees_until_its_end():
    pool = PagePool(20, 4)
    slots = pool.alloc(20)
    pool.free_group_begin()
    pool.free_segment(slots[:4], start_pos=0)
    pool.free(slots[4:6])
    pool.free(slots[6:12])
    pool.free_page_ids(lens(5))
    assert pool.available_size() == 0
    pool.free_group_end()
    assert sorted(free_list(pool)) == [1, 2, 3, 5]
    assert pool.check_integrity() == []


def test_groups_cannot_be_nested_and_the_outer_pile_survives():
    pool = PagePool(8, 4)
    slots = pool.alloc(8)
    pool.free_group_begin()
    pool.free_segment(slots[:4], start_pos=0)
    with pytest.raises(AssertionError, match="free groups cannot be nested"):
        pool.free_group_begin()
    pool.free_group_end()
    assert free_list(pool) == [1]


def test_empty_frees_and_an_empty_group_change_nothing():
    pool = PagePool(8, 4)
    before = pool.free_pages
    none = lens()
    pool.free(none)
    pool.free_segment(none, start_pos=3)
    pool.free_page_ids(none)
    pool.free_group_begin()
    pool.free_group_end()
    assert pool.free_pages is before


def test_clear_forgets_loans_and_an_open_group():
    pool = PagePool(8, 4)
    slots = pool.alloc(8)
    pool.free_group_begin()
    pool.free(slots)
    pool.clear()
    assert free_list(pool) == [1, 2]
    pool.free_group_begin()
    pool.free_group_end()
    assert free_list(pool) == [1, 2]


def test_slots_of_a_narrow_row_table_are_accepted():
    pool = PagePool(16, 4)
    slots = pool.alloc(16).to(torch.int32)
    pool.free_segment(slots[:8], start_pos=0)
    pool.free(slots[8:])
    assert free_list(pool) == [3, 4, 1, 2]
    assert pool.free_pages.dtype == torch.int64
