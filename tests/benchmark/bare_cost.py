"""A bare allocator in a loop, with and without the probe and its ledger: what the checks cost where nothing else runs.

One round lends `REQUESTS` prompts by `alloc_extend` and gives them back by `free_segment` inside one free group, on the
reference's `HybridSWAAllocator`. There is no serving loop, cache or linker around it: this is the dearest case.
"""

from __future__ import annotations

import time

import torch

from allocator.hybrid_swa import HybridSWAAllocator
from stress.check.event import Cause, EdgeShape, PoolShape
from stress.check.shadow import Ledger
from stress.probe import watch

PAGE, PAGES, REQUESTS = 256, 4096, 16


def bare_s(level: int, pages_each: int, rounds: int) -> float:
    """CPU seconds of `rounds` rounds of prompts of so many pages; level 0: not watched."""
    allocator = HybridSWAAllocator(PAGES * PAGE, PAGES * PAGE, PAGE, release="filter-per-group")
    seen = None
    if level:
        pools, edges = (
            (PoolShape("full", PAGES, PAGE, 0), PoolShape("swa", PAGES, PAGE, 0)),
            (EdgeShape("full", "swa"),),
        )
        ledger = Ledger(pools, edges, level)
        seen = watch(allocator, pools, edges, ledger)
    tokens = pages_each * PAGE
    prefix, seq, last = torch.tensor([0]), torch.tensor([tokens]), torch.tensor([-1])
    start_s = time.process_time()
    for number in range(1, 2 * rounds, 2):
        _begin(seen, number, "extend")
        held = [allocator.alloc_extend(prefix, prefix, seq, seq, last, tokens) for _ in range(REQUESTS)]
        _end(seen)
        _begin(seen, number + 1, "results_end")
        allocator.free_group_begin()
        for slots in held:
            allocator.free_segment(slots, start_pos=0)
        allocator.free_group_end()
        _end(seen)
    took_s = time.process_time() - start_s
    if level and (ledger.findings or ledger.crashed):
        raise RuntimeError(f"the bare loop is clean, but: {ledger.findings} {ledger.crashed}")
    return took_s


def _begin(seen, number: int, kind: str) -> None:
    if seen is not None:
        seen.begin(Cause(number, kind, -1, ""), number)


def _end(seen) -> None:
    if seen is not None:
        seen.end()
