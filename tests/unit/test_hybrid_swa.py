"""HybridSWAAllocator: lending in pairs, the map, free groups, the asserts, ring mode."""

import pytest
import torch

from allocator.hybrid_swa import HybridSWAAllocator


def lens(*values):
    return torch.tensor(values, dtype=torch.int64)


def make(full_pages=8, swa_pages=8, page=4, **kwargs):
    return HybridSWAAllocator(full_pages * page, swa_pages * page, page, **kwargs)


def extend(allocator, prefix, seq, last_loc):
    prefix, seq = lens(*prefix), lens(*seq)
    total = int((seq - prefix).sum())
    return allocator.alloc_extend(prefix, prefix, seq, seq, lens(*last_loc), total)


def state(allocator):
    return (
        allocator.full_attn_allocator.free_pages.tolist(),
        allocator.swa_attn_allocator.free_pages.tolist(),
        allocator.full_to_swa_index_mapping.tolist(),
    )


def peers(allocator, slots):
    return allocator.translate_loc_from_full_to_swa(slots).tolist()


def test_map_has_a_slot_for_minus_one():
    allocator = make()
    assert allocator.full_to_swa_index_mapping.shape == (8 * 4 + 4 + 1,)
    assert allocator.full_to_swa_index_mapping.dtype == torch.int64
    assert peers(allocator, lens(-1, 0, 35)) == [-1, 0, 0]


def test_alloc_maps_every_slot_to_its_peer():
    allocator = make()
    allocator.swa_attn_allocator.alloc(8)
    slots = allocator.alloc(8)
    assert slots.tolist() == list(range(4, 12))
    assert peers(allocator, slots) == list(range(12, 20))


def test_extend_continues_both_pages():
    allocator = make()
    allocator.swa_attn_allocator.alloc(4)
    first = extend(allocator, [0], [3], [-1])
    more = extend(allocator, [3], [6], [6])
    assert torch.cat((first, more)).tolist() == [4, 5, 6, 7, 8, 9]
    assert peers(allocator, torch.cat((first, more))) == [8, 9, 10, 11, 12, 13]


def test_decode_continues_or_opens_both_pages():
    allocator = make()
    allocator.swa_attn_allocator.alloc(4)
    extend(allocator, [0, 0], [3, 4], [-1, -1])
    seq = lens(4, 5)
    slots = allocator.alloc_decode(seq, seq, lens(6, 11))
    assert slots.tolist() == [7, 12]
    assert peers(allocator, slots) == [11, 16]


def test_full_only_load_leaves_no_peer():
    allocator = make()
    loaded = allocator.full_attn_allocator.alloc(8)
    assert peers(allocator, loaded) == [0] * 8
    assert allocator.swa_available_size() == 32
    # A new page after an unmapped prefix gets a peer of its own.
    tail = extend(allocator, [8], [10], [int(loaded[-1])])
    assert peers(allocator, tail) == [4, 5]


@pytest.mark.parametrize(("full_pages", "swa_pages"), [(2, 8), (8, 2)])
def test_a_short_pool_changes_nothing(full_pages, swa_pages):
    allocator = make(full_pages, swa_pages)
    extend(allocator, [0], [4], [-1])
    assert allocator.available_size() == 4
    before = state(allocator)
    assert allocator.alloc(8) is None
    assert extend(allocator, [4], [12], [7]) is None
    seq = lens(5, 1)
    assert allocator.alloc_decode(seq, seq, lens(7, -1)) is None
    assert state(allocator) == before
    assert extend(allocator, [4], [8], [7]) is not None


def test_map_verbs_touch_exactly_their_slots():
    allocator = make()
    allocator.set_full_to_swa_mapping(lens(4, 5, 6), lens(8, 9, 10))
    allocator.clear_full_to_swa_mapping(lens(5))
    assert peers(allocator, lens(3, 4, 5, 6, 7)) == [0, 8, 0, 10, 0]
    assert allocator.swa_available_size() == 32


@pytest.mark.parametrize("free", ["free_swa", "free"])
def test_set_shaped_free_takes_whole_pages_and_drops_the_unmapped(free):
    allocator = make()
    slots = allocator.alloc(12)
    allocator.clear_full_to_swa_mapping(slots[8:])
    getattr(allocator, free)(slots[[5, 1, 2, 9]])
    assert sorted(state(allocator)[1]) == [1, 2, 4, 5, 6, 7, 8]
    assert peers(allocator, slots) == [0] * 12
    assert allocator.full_available_size() == (20 if free == "free_swa" else 32)


def test_segment_free_clears_the_map_of_whole_pages():
    allocator = make()
    slots = allocator.alloc(12)
    # Positions 6..9: the second page from its middle, the third up to its middle.
    allocator.free_swa_segment(slots[6:10], start_pos=6)
    assert peers(allocator, slots) == [4, 5, 6, 7] + [0] * 8
    assert state(allocator)[1][:2] == [2, 3]
    assert allocator.check_integrity() == []


def test_segment_free_of_both_sides():
    allocator = make()
    slots = allocator.alloc(12)
    allocator.free_segment(slots[4:], start_pos=4)
    assert state(allocator)[:2] == ([2, 3, 4, 5, 6, 7, 8], [2, 3, 4, 5, 6, 7, 8])
    assert peers(allocator, slots) == [4, 5, 6, 7] + [0] * 8


def test_group_reads_and_clears_at_once_and_returns_at_the_end():
    allocator = make()
    slots = allocator.alloc(8)
    allocator.free_group_begin()
    assert not allocator.is_not_in_free_group
    allocator.free_swa_segment(slots[:4], start_pos=0)
    # The slot is mapped anew while its old peer waits: the old peer must come back, the new one must not.
    allocator.set_full_to_swa_mapping(slots[:4], allocator.swa_attn_allocator.alloc(4))
    allocator.free_full_segment(slots[4:], start_pos=4)
    assert [run.tolist() for run in allocator.swa_page_ids_group] == [[1]]
    assert (allocator.full_available_size(), allocator.swa_available_size()) == (24, 20)
    allocator.free_group_end()
    assert allocator.swa_page_ids_group == []
    assert state(allocator)[:2] == ([2, 3, 4, 5, 6, 7, 8], [1, 4, 5, 6, 7, 8])
    assert peers(allocator, slots[:4]) == [12, 13, 14, 15]


def test_nested_group_is_refused_and_the_outer_pile_survives():
    allocator = make()
    slots = allocator.alloc(4)
    allocator.free_group_begin()
    allocator.free_segment(slots, start_pos=0)
    with pytest.raises(AssertionError, match="free groups cannot be nested"):
        allocator.free_group_begin()
    allocator.free_group_end()
    assert allocator.available_size() == 32
    assert allocator.check_integrity() == []


@pytest.mark.parametrize("grouped", [False, True])
def test_a_full_page_freed_twice_asserts(grouped):
    allocator = make(full_pages=1)
    slots = allocator.alloc(4)
    where = "free_group_end" if grouped else "free_full_segment"
    with pytest.raises(AssertionError, match=f"{where}: FULL pool available_size 8 > size 4"):
        if grouped:
            allocator.free_group_begin()
        allocator.free_full_segment(slots, start_pos=0)
        allocator.free_full_segment(slots, start_pos=0)
        allocator.free_group_end()
    assert allocator.is_not_in_free_group
    assert allocator.check_integrity() == ["FULL free list holds 1 pages more than once, first 1"]


def test_an_assert_on_the_swa_side_does_not_keep_full_pages():
    allocator = make(swa_pages=2)
    slots = allocator.full_attn_allocator.alloc(8)
    with pytest.raises(AssertionError, match="SWA pool available_size 16 > size 8"):
        allocator.free_segment(slots, start_pos=0)
    assert allocator.full_available_size() == 32


def test_ring_mode_never_touches_the_swa_pool_or_the_map():
    allocator = make(full_pages=8, swa_pages=1, ring=True)
    before = state(allocator)[1:]
    assert allocator.available_size() == 32
    slots = extend(allocator, [0], [7], [-1])
    seq = lens(8)
    slots = torch.cat((slots, allocator.alloc_decode(seq, seq, slots[-1:]), allocator.alloc(8)))
    assert allocator.available_size() == 16
    allocator.free_swa(slots[:4])
    allocator.free_group_begin()
    allocator.free_swa_segment(slots[:8], start_pos=0)
    allocator.free_segment(slots[:8], start_pos=0)
    allocator.free_group_end()
    allocator.free(slots[8:])
    assert state(allocator)[1:] == before
    assert allocator.available_size() == 32


@pytest.mark.parametrize("in_group", [False, True])
def test_ring_mode_clears_the_map_and_queues_nothing(in_group):
    """The regression test of sgl-project/sglang#38571: the entries go, the pages were never the SWA pool's."""
    allocator = make(full_pages=8, swa_pages=4, ring=True)
    before = state(allocator)
    slots = allocator.alloc(16)
    allocator.set_full_to_swa_mapping(slots, torch.arange(4, 20))
    assert allocator.check_integrity() == [], "ids of the ring's pages are no pages of the SWA pool"
    if in_group:
        allocator.free_group_begin()
    allocator.free_swa(slots[:4])
    allocator.free_swa_segment(slots[4:12], start_pos=4)
    assert allocator.translate_loc_from_full_to_swa(slots).tolist() == [0] * 12 + [16, 17, 18, 19]
    assert allocator.swa_page_ids_group == []
    allocator.free(slots)
    if in_group:
        allocator.free_group_end()
    assert state(allocator)[1:] == before[1:]


def test_clear_restores_the_first_state():
    allocator = make()
    before = state(allocator)
    slots = allocator.alloc(8)
    allocator.free_group_begin()
    allocator.free_segment(slots, start_pos=0)
    allocator.clear()
    assert state(allocator) == before
    assert (allocator.is_not_in_free_group, allocator.swa_page_ids_group) == (True, [])


@pytest.mark.parametrize(
    ("full", "swa", "fault"),
    [
        (lens(4, 8), lens(4, 4), "1 SWA pages have more than one FULL page, first 1"),
        (lens(4, 5), lens(4, 9), "1 FULL pages map into two SWA pages, first 1"),
        (lens(5), lens(6), "1 FULL pages map to other offsets than their own, first 1"),
        (lens(6), lens(2), "1 FULL pages map into SWA padding, first 1"),
        (lens(0), lens(4), "1 FULL padding pages have a peer, first 0"),
    ],
)
def test_integrity_names_each_fault_of_the_map(full, swa, fault):
    allocator = make()
    allocator.swa_attn_allocator.alloc(8)
    assert allocator.check_integrity() == []
    allocator.set_full_to_swa_mapping(full, swa)
    assert fault in allocator.check_integrity()


def test_integrity_sees_a_mapped_page_on_the_free_list():
    allocator = make()
    allocator.alloc(4)
    allocator.swa_attn_allocator.free_page_ids(lens(1))
    assert allocator.check_integrity() == ["1 SWA pages are mapped and on the free list, first 1"]
