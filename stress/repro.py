"""The three-row table of sgl-project/sglang#38519, made by driving the allocator, not by remembering it.

Page size 256, 16 SWA pages (4096 tokens). A 4-page segment is freed with `free_swa_segment` in a free group:
    all_mapped     every page has a peer
    no_peers       an externally loaded prefix: FULL slots only
    half_evicted   the segment's second half left with the window before
`freed` are the SWA page ids that the group's end put on the free list, read from its front, where freed pages
go. A group's end that finds available > size asserts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from allocator.hybrid_swa import HybridSWAAllocator
from allocator.release import RELEASE_STRATEGIES

SCHEMA = 1
PAGE_SIZE = 256
SWA_TOKENS = 16 * PAGE_SIZE
FULL_TOKENS = 2 * SWA_TOKENS
SEGMENT_TOKENS = 4 * PAGE_SIZE

Lend = Callable[[Any, int], "torch.Tensor | None"]
"""(allocator, tokens) -> slots with SWA peers"""
PASS = "pass"
ASSERT = "assert"
# Releases whose segment free filters nothing: these edits leave the allocator's free as it is.
_UNFILTERED = ("unpatched", "no-cursor", "no-ring-guard")
_UNPATCHED = {
    "all_mapped": ([1, 2, 3, 4], 4096, PASS),
    "no_peers": ([0, 0, 0, 0], 5120, ASSERT),
    "half_evicted": ([1, 2, 0, 0], 4608, ASSERT),
}
_PATCHED = {
    "all_mapped": ([1, 2, 3, 4], 4096, PASS),
    "no_peers": ([], 4096, PASS),
    "half_evicted": ([1, 2], 4096, PASS),
}


def repro_table() -> dict[str, Any]:
    """{"schema", "rows": [{"target", "release", "scenario", "freed", "available", "size", "outcome"}]}

    Of the reference, one row for each strategy and scenario. `available` and `size` are tokens of the SWA pool.
    """
    rows = [
        {"target": "reference", "release": release, "scenario": scenario, **_reference_row(release, scenario)}
        for release in RELEASE_STRATEGIES
        for scenario in SCENARIOS
    ]
    return {"schema": SCHEMA, "rows": rows}


def as_promised(row: dict[str, Any]) -> bool:
    """Whether a row is what upstream showed for its scenario, unpatched or patched."""
    unpatched = all(part in _UNFILTERED for part in row["release"].split("+"))
    promised = (_UNPATCHED if unpatched else _PATCHED)[row["scenario"]]
    return (row["freed"], row["available"], row["outcome"]) == promised


def free_segment(allocator: Any, scenario: str, lend: Lend) -> dict[str, Any]:
    """A row's freed, available, size and outcome, of an allocator that has the names of SGLang's."""
    segment = SCENARIOS[scenario](allocator, lend)
    pages_before = len(allocator.swa_attn_allocator.get_all_free_pages())
    allocator.free_group_begin()
    allocator.free_swa_segment(segment, start_pos=0)
    try:
        allocator.free_group_end()
        outcome = PASS
    except AssertionError:
        outcome = ASSERT
    free_pages = allocator.swa_attn_allocator.get_all_free_pages().tolist()
    return {
        "freed": free_pages[: len(free_pages) - pages_before],
        "available": allocator.swa_available_size(),
        "size": allocator.size_swa,
        "outcome": outcome,
    }


def _reference_row(release: str, scenario: str) -> dict[str, Any]:
    allocator = HybridSWAAllocator(FULL_TOKENS, SWA_TOKENS, PAGE_SIZE, "cpu", release=release)
    return free_segment(allocator, scenario, HybridSWAAllocator.alloc)


def _all_mapped(allocator: Any, lend: Lend) -> torch.Tensor:
    return _lent(lend(allocator, SEGMENT_TOKENS))


def _no_peers(allocator: Any, lend: Lend) -> torch.Tensor:
    return _lent(allocator.full_attn_allocator.alloc(SEGMENT_TOKENS))


def _half_evicted(allocator: Any, lend: Lend) -> torch.Tensor:
    segment = _all_mapped(allocator, lend)
    half = SEGMENT_TOKENS // 2
    allocator.free_swa_segment(segment[half:], start_pos=half)
    return segment


def _lent(slots: torch.Tensor | None) -> torch.Tensor:
    if slots is None:
        raise RuntimeError(f"a fresh allocator of {FULL_TOKENS} tokens lends no {SEGMENT_TOKENS}")
    return slots


SCENARIOS = {"all_mapped": _all_mapped, "no_peers": _no_peers, "half_evicted": _half_evicted}
