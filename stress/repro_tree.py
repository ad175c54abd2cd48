"""`python -m stress.repro_tree ROOT TARGET RELEASE`: the rows of stress.repro from a real tree's allocator.

The tree's own SWATokenToKVPoolAllocator is driven; its free list is read, nothing is computed beside it.
Prints a JSON list of rows, or {"error": "..."} for a tree that has no segment free.
"""

from __future__ import annotations

import sys
from typing import Any

import torch

from stress.engine.sglang.page_allocator import page_allocator
from stress.engine.sglang.tree_import import Tree, load_tree
from stress.engine.tree_error import TreeError, tell
from stress.repro import FULL_TOKENS, PAGE_SIZE, SCENARIOS, SWA_TOKENS, free_segment


def tree_rows(root: str, target: str, release: str) -> list[dict[str, Any]]:
    """One row for each scenario. Raises TreeError."""
    tree = load_tree(root)
    if not tree.features.segment_free:
        raise TreeError(f"sglang {tree.version} has no segment free; use 0.5.20 or later")
    return [
        {"target": target, "release": release, "scenario": scenario, **_row(tree, scenario)}
        for scenario in SCENARIOS
    ]


def _row(tree: Tree, scenario: str) -> dict[str, Any]:
    allocator = page_allocator(tree, FULL_TOKENS, SWA_TOKENS, PAGE_SIZE)
    return free_segment(allocator, scenario, _lend)


def _lend(allocator: Any, tokens: int) -> torch.Tensor | None:
    """The tree's `alloc` is for pages of one token; a scheduler lends by alloc_extend."""
    nothing, length = torch.tensor([0]), torch.tensor([tokens])
    return allocator.alloc_extend(nothing, nothing, length, length, torch.tensor([-1]), tokens)


if __name__ == "__main__":
    sys.exit(tell(lambda: tree_rows(*sys.argv[1:4])))
