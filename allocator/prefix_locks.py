"""Locks on prefixes: receipts that say exactly what they cover.

FULL is locked on the path to the root. SWA is locked on whole nodes from the deep end up until one window is
covered, by position: tombstones count, and a part that comes back to life under a lock is protected at once
(sglang `acquire_component_lock`, `set_component_device_value`).
Must hold: an unlock releases what its lock took and nothing else (sgl-project/sglang#24972); a node has no more
SWA locks than FULL locks.
"""

from __future__ import annotations

from collections.abc import Hashable

from allocator.prefix_node import Lock, LockError, PrefixNode
from allocator.prefix_tree import PrefixTree


class PrefixLocks(PrefixTree):
    """`holders` (holder -> serial -> receipt) is the multiset of locks that are held; read only for others."""

    def __init__(self, window_pages: int) -> None:
        super().__init__(window_pages)
        self.holders: dict[Hashable, dict[int, Lock]] = {}
        self._next_serial = 1

    def lock(self, node: PrefixNode, holder: Hashable) -> Lock:
        """Locks FULL on the path to the root, and SWA on its deep end for one window.

        Raises ValueError if the node has been evicted since it was matched.
        """
        if node.parent is None and node is not self.root:
            raise ValueError(f"lock: {node!r} was evicted; match again before locking")
        receipt = Lock(self._next_serial, holder, node, self._lock_swa(node), node.end)
        self._next_serial += 1
        newly_protected = 0
        while node.parent is not None:
            if not node.full_lock:
                newly_protected += node.end - node.start
            node.full_lock += 1
            node = node.parent
        self.full_evictable -= newly_protected
        self.full_protected += newly_protected
        self.holders.setdefault(holder, {})[receipt.serial] = receipt
        return receipt

    def _lock_swa(self, node: PrefixNode) -> int:
        """Locks whole nodes from `node` up until a window is covered; returns the page where the range starts."""
        depth = floor = node.end
        while floor and depth - floor < self.window_pages:
            if node.swa_live and not node.swa_lock:
                self.swa_evictable -= node.end - node.start
                self.swa_protected += node.end - node.start
            node.swa_lock += 1
            floor, node = node.start, node.parent
        return floor

    def unlock(self, receipt: Lock) -> None:
        """Releases exactly what the lock took. Raises LockError for a second unlock or a negative count."""
        if not receipt.held:
            raise LockError(
                f"unlock: receipt {receipt.serial} of {receipt.holder!r} was released; unlock it once"
            )
        if receipt.swa_held:
            self._unlock_swa(receipt)
        receipt.held = receipt.swa_held = False
        newly_evictable, node = 0, receipt.node
        while node.parent is not None:
            if node.full_lock <= 0:
                raise LockError(f"unlock: {node!r} has no FULL lock left for {receipt.holder!r}")
            node.full_lock -= 1
            if not node.full_lock:
                newly_evictable += node.end - node.start
                if not node.children:
                    self.full_queue.push(node)
            node = node.parent
        self.full_protected -= newly_evictable
        self.full_evictable += newly_evictable
        mine = self.holders[receipt.holder]
        del mine[receipt.serial]
        if not mine:
            del self.holders[receipt.holder]

    def release_swa_lock(self, receipt: Lock) -> None:
        """Releases the SWA part early, once the window has moved past the prefix; FULL stays locked."""
        if not receipt.swa_held:
            raise LockError(
                f"release_swa_lock: receipt {receipt.serial} of {receipt.holder!r} has no SWA lock left"
            )
        self._unlock_swa(receipt)
        receipt.swa_held = False

    def _unlock_swa(self, receipt: Lock) -> None:
        """Walks to the receipt's floor, whatever has been split or revived since (sgl-project/sglang#24972)."""
        node = receipt.node
        while node.end > receipt.swa_floor:
            self._drop_swa_lock(node, receipt)
            node = node.parent

    def _drop_swa_lock(self, node: PrefixNode, receipt: Lock) -> None:
        if node.swa_lock <= 0:
            raise LockError(f"unlock: {node!r} has no SWA lock left for {receipt.holder!r}")
        node.swa_lock -= 1
        if node.swa_live and not node.swa_lock:
            self.swa_protected -= node.end - node.start
            self.swa_evictable += node.end - node.start
