"""Which allocator paths need nothing from the device, shown without one.

On torch's "meta" device tensors have shapes and no data: whatever must read a value to go on (a boolean
index, unique, item) raises NotImplementedError. A path that runs there reads nothing back. Copies of data
that is never looked at, and waits for events, are not seen.
"""

import pytest
import torch

from allocator.hybrid_swa import HybridSWAAllocator

PAGE = 16


def make(release):
    return HybridSWAAllocator(32 * PAGE, 16 * PAGE, PAGE, device="meta", release=release)


@pytest.mark.parametrize("release", ["unpatched", "filter-per-call", "filter-per-group"])
def test_lending_reads_nothing_back(release):
    allocator = make(release)
    prefix, seq = torch.tensor([0, 0]), torch.tensor([20, 33])
    on_device = torch.zeros(2, dtype=torch.int64, device="meta")
    slots = allocator.alloc_extend(on_device, prefix, on_device, seq, on_device, 53)
    assert slots.shape == (53,)
    assert allocator.alloc_decode(on_device, seq + 1, slots[-2:]).shape == (2,)
    assert allocator.alloc(2 * PAGE).shape == (2 * PAGE,)
    # 2 + 3 pages, decode opens none, 2 pages: the host knows it without asking.
    assert (allocator.full_available_size(), allocator.swa_available_size()) == (25 * PAGE, 9 * PAGE)


def free_two_segments(allocator, grouped):
    slots = allocator.alloc(4 * PAGE)
    if grouped:
        allocator.free_group_begin()
    allocator.free_segment(slots[: 2 * PAGE], start_pos=0)
    allocator.free_segment(slots[2 * PAGE + 3 :], start_pos=2 * PAGE + 3)
    if grouped:
        allocator.free_group_end()


@pytest.mark.parametrize("grouped", [False, True])
def test_unpatched_segment_frees_read_nothing_back(grouped):
    allocator = make("unpatched")
    free_two_segments(allocator, grouped)
    assert (allocator.full_available_size(), allocator.swa_available_size()) == (32 * PAGE, 16 * PAGE)


@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.parametrize("release", ["filter-per-call", "filter-per-group"])
def test_control_a_filter_reads_back(release, grouped):
    with pytest.raises(NotImplementedError, match="nonzero"):
        free_two_segments(make(release), grouped)


def test_control_a_set_shaped_free_reads_back():
    allocator = make("unpatched")
    with pytest.raises(NotImplementedError, match="unique"):
        allocator.free_swa(allocator.alloc(PAGE))
