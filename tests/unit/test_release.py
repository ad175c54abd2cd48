"""The three-row table of sglang#38519, digit for digit, and the silent half of the same fault.

Page size 256, 16 SWA pages (4096 tokens), a 4-page segment freed with free_swa_segment in a free group.
"""

import pytest
import torch

from allocator.hybrid_swa import HybridSWAAllocator
from allocator.release import RELEASE_STRATEGIES, release_strategy

PAGE, SWA_TOKENS, SEGMENT = 256, 4096, 4 * 256
PATCHED = [name for name in RELEASE_STRATEGIES if name != "unpatched"]


class Watched(HybridSWAAllocator):
    """Remembers which page ids reach the SWA free list."""

    def __init__(self, release):
        super().__init__(8192, SWA_TOKENS, PAGE, release=release)
        self.freed = []
        free_page_ids = self.swa_attn_allocator.free_page_ids

        def watch(page_ids):
            self.freed.extend(page_ids.tolist())
            free_page_ids(page_ids)

        self.swa_attn_allocator.free_page_ids = watch


def every_page_mapped(allocator):
    return allocator.alloc(SEGMENT)


def no_peers(allocator):
    """What a load that skips SWA leaves behind: FULL pages only."""
    return allocator.full_attn_allocator.alloc(SEGMENT)


def half_evicted(allocator):
    """SWA pages 1..4 were lent; those of the segment's pages 3 and 4 left with the window."""
    segment = allocator.alloc(SEGMENT)
    allocator.free_swa_segment(segment[2 * PAGE :], start_pos=2 * PAGE)
    allocator.freed.clear()
    return segment


def free_in_group(allocator, segment):
    """Frees the segment's SWA side; returns the assertion's message, or None."""
    allocator.free_group_begin()
    allocator.free_swa_segment(segment, start_pos=0)
    try:
        allocator.free_group_end()
    except AssertionError as raised:
        return str(raised)
    return None


UNPATCHED_TABLE = [
    (every_page_mapped, [1, 2, 3, 4], 4096),
    (no_peers, [0, 0, 0, 0], 5120),
    (half_evicted, [1, 2, 0, 0], 4608),
]


@pytest.mark.parametrize(("scenario", "freed", "available"), UNPATCHED_TABLE)
def test_unpatched_row(scenario, freed, available):
    allocator = Watched("unpatched")
    message = free_in_group(allocator, scenario(allocator))
    assert allocator.freed == freed
    assert allocator.swa_available_size() == available
    if available > SWA_TOKENS:
        assert message == f"free_group_end: SWA pool available_size {available} > size 4096"
        assert "outside 1..16" in allocator.check_integrity()[0]
    else:
        assert message is None
        assert allocator.check_integrity() == []


@pytest.mark.parametrize("release", PATCHED)
@pytest.mark.parametrize(
    ("scenario", "freed"), [(every_page_mapped, [1, 2, 3, 4]), (no_peers, []), (half_evicted, [1, 2])]
)
def test_patched_row(release, scenario, freed):
    allocator = Watched(release)
    assert free_in_group(allocator, scenario(allocator)) is None
    assert allocator.freed == freed
    assert allocator.swa_available_size() == SWA_TOKENS
    assert allocator.check_integrity() == []


@pytest.mark.parametrize("release", PATCHED)
@pytest.mark.parametrize("scenario", [every_page_mapped, no_peers, half_evicted])
def test_patched_row_without_a_group(release, scenario):
    allocator = Watched(release)
    allocator.free_swa_segment(scenario(allocator), start_pos=0)
    assert allocator.swa_available_size() == SWA_TOKENS
    assert allocator.check_integrity() == []


def test_unpatched_asserts_without_a_group_too():
    allocator = Watched("unpatched")
    with pytest.raises(AssertionError, match="free_swa_segment: SWA pool available_size 5120 > size 4096"):
        allocator.free_swa_segment(no_peers(allocator), start_pos=0)


def test_allocator_stays_usable_after_the_assert():
    allocator = Watched("unpatched")
    assert free_in_group(allocator, no_peers(allocator)) is not None
    assert allocator.is_not_in_free_group
    assert allocator.alloc(PAGE) is not None
    allocator.free_group_begin()


@pytest.mark.parametrize("bogus_pages", [1, 3, 4])
def test_a_loaded_pool_corrupts_silently(bogus_pages):
    allocator = Watched("unpatched")
    allocator.alloc((bogus_pages + 4) * PAGE)
    loaded = allocator.full_attn_allocator.alloc(bogus_pages * PAGE)
    assert free_in_group(allocator, loaded) is None
    assert allocator.swa_attn_allocator.get_all_free_pages().tolist().count(0) == bogus_pages
    lent = allocator.alloc(bogus_pages * PAGE)
    assert allocator.translate_loc_from_full_to_swa(lent).unique().numel() == PAGE
    assert int(allocator.translate_loc_from_full_to_swa(lent).max()) < PAGE


@pytest.mark.parametrize("release", PATCHED)
def test_a_loaded_pool_stays_sound_when_patched(release):
    allocator = Watched(release)
    allocator.alloc(8 * PAGE)
    assert free_in_group(allocator, no_peers(allocator)) is None
    assert allocator.swa_available_size() == SWA_TOKENS - 8 * PAGE
    lent = allocator.alloc(SEGMENT)
    assert allocator.translate_loc_from_full_to_swa(lent).unique().numel() == SEGMENT
    assert allocator.check_integrity() == []


def count_filters(monkeypatch, release, grouped):
    """Boolean-index filters, each a sync on a device, in 16 segment frees of a page each."""
    import allocator.release as module

    calls = []
    drop_padding = module._drop_padding
    monkeypatch.setattr(module, "_drop_padding", lambda pages: calls.append(1) or drop_padding(pages))
    allocator = Watched(release)
    slots = allocator.alloc(16 * PAGE)
    if grouped:
        allocator.free_group_begin()
    for page in range(16):
        segment = slots[page * PAGE : (page + 1) * PAGE]
        allocator.free_swa_segment(segment, start_pos=page * PAGE)
    if grouped:
        allocator.free_group_end()
    assert allocator.swa_available_size() == SWA_TOKENS
    return len(calls)


@pytest.mark.parametrize(
    ("release", "grouped", "ungrouped"),
    [("unpatched", 0, 0), ("filter-per-call", 16, 16), ("filter-per-group", 1, 16)],
)
def test_filters_per_group_of_16_calls(monkeypatch, release, grouped, ungrouped):
    assert count_filters(monkeypatch, release, grouped=True) == grouped
    monkeypatch.undo()
    assert count_filters(monkeypatch, release, grouped=False) == ungrouped


def test_an_unknown_strategy_names_the_choices():
    with pytest.raises(
        ValueError, match="'sorted'; choose one of unpatched, filter-per-call, filter-per-group"
    ):
        release_strategy("sorted")
    with pytest.raises(ValueError, match="choose one of"):
        HybridSWAAllocator(512, 512, 256, release="patched")


@pytest.mark.parametrize("name", RELEASE_STRATEGIES)
def test_strategies_keep_order(name):
    strategy = release_strategy(name)
    runs = [strategy.enqueue(torch.tensor(run)) for run in ([5, 0, 3], [0], [9])]
    assert strategy.name == name
    assert strategy.flush(runs).tolist() == ([5, 0, 3, 0, 9] if name == "unpatched" else [5, 3, 9])
