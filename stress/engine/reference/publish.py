"""A row's pages on their way into the prefix cache and back to the pools.

`publish` is upstream's checkpoint: what left the window is given back first, then whole pages go into the tree,
copies that the tree already has are freed, and the row names the tree's pages from then on. The cursor is the
only thing between an unmapped slot and the segment free: positions below it lose their FULL part alone
(sglang `free_kv_row_segments`). A tombstone for which the row has SWA gets the row's peers; the tree never
changes a FULL page that others may have in their rows (sgl-project/sglang#29352).
"""

from __future__ import annotations

import numpy as np

from allocator.prefix_node import PrefixNode
from stress.engine.reference.memory import Memory
from stress.engine.reference.row import NO_PAGES, Row

# Decoding gives pages back when so many tokens have slid out of the window (SGLANG_SWA_EVICTION_INTERVAL).
EVICTION_INTERVAL_TOKENS = 128


def next_window_release(memory: Memory, row: Row) -> int:
    """Committed tokens at which decoding would next give a page of the row back."""
    slid = row.cursor + EVICTION_INTERVAL_TOKENS + memory.window_tokens
    page = max(row.cursor, row.protected) + memory.page_size + memory.kept_tokens()
    return max(slid, page)


def release_window(memory: Memory, row: Row, end: int, interval_tokens: int = 1) -> None:
    """Gives back the SWA side of private pages that left the window of a row that ends at `end`; moves the cursor."""
    if not memory.paged_swa or end - memory.window_tokens < row.cursor + interval_tokens:
        return
    lo = max(row.cursor, row.protected)
    hi = memory.window_frontier(row, end)
    row.cursor = max(lo, hi)
    if hi > lo:
        memory.step = "window"
        memory.allocator.free_swa_segment(memory.slots(row.pages, lo, hi), start_pos=lo)
        memory.step = ""


def publish(memory: Memory, row: Row, *, finished: bool) -> PrefixNode:
    """Whole committed pages into the tree; the row is repointed and its lock moved to the new end, which is returned.

    A running request gives back first what left the window; a finished one leaves its window to the tree whole.
    Where the hit had been cut although FULL knew more, the first insert that reaches that point ends there, so
    that a window is live at the point where prefixes part (sglang `swa_branching_seqlen`).
    """
    end = row.committed
    if row.branch is not None and row.protected < row.branch <= row.committed:
        end, row.branch = row.branch, None
    if not finished:
        release_window(memory, row, end - 1)
    node = insert(memory, row, end // memory.page_size, finished=finished)
    if not finished and end < row.committed:
        release_window(memory, row, row.committed - 1)
    return node


def insert(memory: Memory, row: Row, whole: int, *, finished: bool) -> PrefixNode:
    """The row's first `whole` pages into the tree, its lock on their end; copies the tree has already are freed."""
    page_size = memory.page_size
    has_peer = memory.pages_with_peer(row, whole, finished=finished)
    own = row.pages[:whole].copy()
    memory.step = "insert"
    inserted = memory.cache.insert(row.keys[:whole], own, has_peer, row.protected // page_size)
    for lo, hi in inserted.duplicates:
        _free_own_copy(memory, row, lo * page_size, hi * page_size)
    for lo, hi in inserted.recovered:
        memory.step = "recover"
        memory.recover(inserted, own, lo, hi)
    row.pages[:whole] = inserted.pages
    receipt = memory.cache.lock(inserted.node, row.spec.rid)
    memory.cache.unlock(row.receipt)
    row.receipt = receipt
    row.protected = whole * page_size
    memory.step = ""
    return inserted.node


def live_to_root(node: PrefixNode) -> np.ndarray:
    """FULL pages of the path to `node` that the tree says have SWA slots: int64[], deep end first. O(depth)."""
    runs = []
    while node.parent is not None:
        if node.swa_live:
            runs.append(node.pages)
        node = node.parent
    return np.concatenate(runs) if runs else NO_PAGES


def keys_to(node: PrefixNode, first: int) -> np.ndarray:
    """Keys of the path to `node`, from page `first` on: int64[]. O(what is told)."""
    runs = []
    while node.end > first:
        runs.append(node.keys[max(0, first - node.start) :])
        node = node.parent
    return np.concatenate(runs[::-1]) if runs else NO_PAGES


def _free_own_copy(memory: Memory, row: Row, lo: int, hi: int) -> None:
    memory.step = "duplicate"
    _free_span(memory, row, lo, hi)


def _free_span(memory: Memory, row: Row, lo: int, hi: int) -> None:
    """Frees positions [lo, hi) of the row: below the cursor the FULL part alone, from it on both."""
    split = min(max(lo, row.cursor), hi)
    if split > lo:
        memory.allocator.free_full_segment(memory.slots(row.pages, lo, split), start_pos=lo)
    if hi > split:
        memory.allocator.free_segment(memory.slots(row.pages, split, hi), start_pos=split)


def release_private(memory: Memory, row: Row) -> bool:
    """Frees what is not the cache's and drops the lock; True if pages reserved for drafts came back."""
    edge = max(row.protected, memory.pages_for(row.committed) * memory.page_size)
    memory.step = "release"
    _free_span(memory, row, row.protected, min(edge, row.allocated))
    spec_tail = row.allocated > edge
    if spec_tail:
        memory.step = "spec tail"
        _free_span(memory, row, edge, row.allocated)
    memory.step = ""
    memory.cache.unlock(row.receipt)
    row.receipt = None
    return spec_tail
