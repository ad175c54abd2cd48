"""Slow checks of a prefix tree, computed from its nodes and receipts alone.

Nothing here trusts a counter or a queue: sums come from the nodes, lock counts from the receipts. The order
of all results is that of the tree (children as they were inserted), so that two equal runs report equally.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from allocator.prefix_node import KEY_BYTES, PageCounts, PrefixNode

if TYPE_CHECKING:
    from allocator.prefix_cache import PrefixCache


def nodes_below(root: PrefixNode) -> list[PrefixNode]:
    """Every node but the root, a parent before its children."""
    found: list[PrefixNode] = []
    pending = list(reversed(root.children.values()))
    while pending:
        node = pending.pop()
        found.append(node)
        pending.extend(reversed(node.children.values()))
    return found


def page_ids(root: PrefixNode, swa_live_only: bool = False) -> np.ndarray:
    """FULL page ids of the tree, int64[]; with `swa_live_only`, those that have SWA slots."""
    runs = [node.pages for node in nodes_below(root) if node.swa_live or not swa_live_only]
    return np.concatenate(runs) if runs else np.empty(0, dtype=np.int64)


def recount(root: PrefixNode) -> PageCounts:
    """The counters as the nodes have them, in pages."""
    full_evictable = full_protected = swa_evictable = swa_protected = 0
    for node in nodes_below(root):
        pages = len(node.pages)
        if node.full_lock:
            full_protected += pages
        else:
            full_evictable += pages
        if node.swa_live and node.swa_lock:
            swa_protected += pages
        elif node.swa_live:
            swa_evictable += pages
    return PageCounts(full_evictable, full_protected, swa_evictable, swa_protected)


def problems(cache: PrefixCache) -> list[str]:
    """All breaches of the tree's contract, one line each."""
    nodes = nodes_below(cache.root)
    found: list[str] = []
    if len({node.last_use for node in nodes}) != len(nodes):
        found.append("last use: two nodes have the same tick")
    for node in nodes:
        found += _structure_problems(node)
        found += _lock_problems(node)
    if cache.root.full_lock or cache.root.swa_lock or cache.root.swa_live:
        found.append("root: it is locked or SWA live; the empty prefix has no pages")
    pages = page_ids(cache.root)
    if len(np.unique(pages)) != len(pages):
        found.append("pages: a FULL page is in the tree twice")
    expected = recount(cache.root)
    if cache.counts() != expected:
        found.append(f"counters: {cache.counts()} and the nodes sum to {expected}")
    found += _receipt_problems(cache, nodes)
    found += cache.full_queue.problems(nodes, "full")
    found += cache.swa_recency.problems(nodes)
    return found


def _structure_problems(node: PrefixNode) -> list[str]:
    found = []
    parent, pages = node.parent, len(node.pages)
    if not pages:
        found.append(f"{node!r}: it has no pages")
    if node.end - node.start != pages or len(node.key_bytes) != pages * KEY_BYTES:
        found.append(f"{node!r}: {pages} pages and {len(node.key_bytes)} key bytes do not fit its range")
    if parent is None or parent.children.get(node.first_key) is not node:
        found.append(f"{node!r}: its parent does not list it")
    elif node.start != parent.end:
        found.append(f"{node!r}: it starts at {node.start} and its parent ends at {parent.end}")
    return found


def _lock_problems(node: PrefixNode) -> list[str]:
    found = []
    if node.full_lock < 0 or node.swa_lock < 0:
        found.append(
            f"{node!r}: lock counts {node.full_lock} FULL and {node.swa_lock} SWA; none may be negative"
        )
    if node.swa_lock > node.full_lock:
        found.append(
            f"{node!r}: {node.swa_lock} SWA locks and {node.full_lock} FULL locks; SWA never exceeds FULL"
        )
    return found


def _receipt_problems(cache: PrefixCache, nodes: list[PrefixNode]) -> list[str]:
    """Lock counts must be the multiset of receipts that are held."""
    full: dict[int, int] = {}
    swa: dict[int, int] = {}
    found = []
    for receipts in cache.holders.values():
        for receipt in receipts.values():
            node: PrefixNode | None = receipt.node
            if node.parent is None and node is not cache.root:
                found.append(
                    f"receipt {receipt.serial} of {receipt.holder!r}: {node!r} was evicted under its lock"
                )
            if node.end != receipt.depth:
                found.append(
                    f"receipt {receipt.serial}: locked to depth {receipt.depth}, its node ends at {node.end}"
                )
            while node is not None and node is not cache.root:
                full[node.node_id] = full.get(node.node_id, 0) + 1
                if receipt.swa_held and node.start >= receipt.swa_floor:
                    swa[node.node_id] = swa.get(node.node_id, 0) + 1
                node = node.parent
    for node in nodes:
        expected = full.get(node.node_id, 0), swa.get(node.node_id, 0)
        if (node.full_lock, node.swa_lock) != expected:
            found.append(
                f"{node!r}: {node.full_lock} FULL and {node.swa_lock} SWA locks; "
                f"the receipts that cover it are {expected[0]} and {expected[1]}"
            )
    return found
