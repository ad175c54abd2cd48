"""Page-granular radix cache over FULL and SWA pages: match, insert, lock, evict.

Keys: one int64 a page; a page's key names the whole prefix up to its end. Values: FULL page ids, and whether
the page has SWA slots. Ranges of pages are indices into the keys.
Must hold: a FULL value never changes while it is in the tree, since others may have it in their rows
(sgl-project/sglang#29352); an unlock releases what its lock took and nothing else (sgl-project/sglang#24972);
a node has no more SWA locks than FULL locks; `check_integrity()` is empty.
Differs from upstream on purpose: pages without a peer are inserted as tombstones, not as live zeros.
"""

from __future__ import annotations

from collections.abc import Hashable

import numpy as np

from allocator import prefix_audit
from allocator.page_ranges import PageRange, joined_ranges, runs
from allocator.prefix_node import Inserted, Lock, LockError, Match, PrefixNode
from allocator.prefix_tree import NO_PAGES, PrefixTree


class PrefixCache(PrefixTree):
    """The prefix cache of one rank.

    window_pages: pages that a sliding window of the model can touch, >= 1.
    swa_gates_match: cut a hit so that its window is SWA live. False for engines whose linker skips SWA.
    swa: False where no paged SWA pool exists (a ring); then every page is a tombstone, nothing is recovered.

    `holders` (holder -> serial -> receipt) is the multiset of locks that are held; read only for others.
    """

    def __init__(self, window_pages: int, swa_gates_match: bool, *, swa: bool = True) -> None:
        if window_pages < 1:
            raise ValueError(f"PrefixCache: window_pages is {window_pages}; a window touches at least 1 page")
        if swa_gates_match and not swa:
            raise ValueError(
                "PrefixCache: swa_gates_match needs paged SWA; pass swa_gates_match=False with swa=False"
            )
        super().__init__()
        self.window_pages = window_pages
        self.swa_gates_match = swa_gates_match
        self.swa = swa
        self.holders: dict[Hashable, dict[int, Lock]] = {}
        self._next_serial = 1

    def match(self, keys: np.ndarray) -> Match:
        """Longest cached prefix of `keys` (int64[n]), in whole pages; a node hit in part is split at the hit.

        With `swa_gates_match` the hit is cut to the longest prefix whose last `window_pages` pages, or all of
        them if there are fewer, are SWA live. Marks the path as used. No hit: the root and no pages.
        """
        path, end = self._walk(_as_int64("match", "keys", keys))
        if self.swa_gates_match:
            path, end = self._cut_to_live_window(path, end)
        if not path:
            return Match(NO_PAGES, self.root, 0)
        self._split_end(path, end)
        self._touch(path)
        swa_from = end
        for node in reversed(path):
            if not node.swa_live:
                break
            swa_from = node.start
        return Match(np.concatenate([node.pages for node in path]), path[-1], swa_from)

    def _cut_to_live_window(self, path: list[PrefixNode], end: int) -> tuple[list[PrefixNode], int]:
        """Drops nodes from the deep end until the last `window_pages` pages of what is left are SWA live.

        live  live  tomb  live          window_pages = 2
        [0    1) [1 2) [2 3) [3 4)      run [3, 4) is too short; run [0, 2) is kept
        """
        kept = len(path)
        for index in range(len(path) - 1, -1, -1):
            node = path[index]
            if not node.swa_live:
                kept, end = index, node.start
            elif node.start == 0 or end - node.start >= self.window_pages:
                return path[:kept], end
        return [], 0

    def insert(self, keys: np.ndarray, pages: np.ndarray, swa_live: np.ndarray, protected: int) -> Inserted:
        """Puts a prefix into the tree; never replaces a FULL page that is there.

        keys int64[n]; pages int64[n], the caller's FULL ids, copied; swa_live bool[n], page has SWA slots.
        protected: pages at the front that are the tree's own, because the caller has them locked; they are
        never duplicates, but may be recovered. Raises ValueError if lengths differ, or if the tree does not
        hold the protected pages.
        """
        keys, pages = _as_int64("insert", "keys", keys), _as_int64("insert", "pages", pages)
        live = np.asarray(swa_live, dtype=bool) if self.swa else np.zeros(len(keys), dtype=bool)
        if not len(keys) == len(pages) == len(live):
            raise ValueError(
                f"insert: {len(keys)} keys, {len(pages)} pages, {len(live)} SWA flags; give one each"
            )
        path, known = self._walk(keys)
        if not 0 <= protected <= known:
            raise ValueError(
                f"insert: {protected} pages are called protected and the tree holds {known}; lock them first"
            )
        self._split_end(path, known)
        live_bytes = live.tobytes()
        path, recovered = self._recover_path(path, pages, live_bytes)
        canonical = pages.copy()
        if path:
            canonical[:known] = np.concatenate([node.pages for node in path])
        duplicates = _duplicate_ranges(canonical, pages, protected, known, recovered)
        adopted = list(runs(live_bytes, known, len(keys)))
        for low, high in adopted:
            parent = path[-1] if path else self.root
            own = pages[low:high].copy()
            path.append(self._adopt(parent, low, keys[low:high].tobytes(), own, bool(live_bytes[low])))
        self._touch(path)
        return Inserted(path[-1] if path else self.root, canonical, duplicates, recovered, adopted)

    def _recover_path(
        self, path: list[PrefixNode], pages: np.ndarray, live_bytes: bytes
    ) -> tuple[list[PrefixNode], list[PageRange]]:
        """Revives the tombstones of `path` for which the caller has SWA; returns the path as split."""
        recovered: list[PageRange] = []
        revised: list[PrefixNode] = []
        for node in path:
            if not node.swa_live and live_bytes.find(1, node.start, node.end) >= 0:
                for low, high in list(runs(live_bytes, node.start, node.end)):
                    part = self._split(node, high) if high < node.end else node
                    revised.append(part)
                    if live_bytes[low]:
                        self._recover(part, pages[low:high])
                        recovered.append((low, high))
            else:
                revised.append(node)
        return revised, joined_ranges(recovered)

    def lock(self, node: PrefixNode, holder: Hashable) -> Lock:
        """Locks FULL on the path to the root, and SWA on the live nodes at its end, whole, for one window.

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
        """Locks the SWA window that ends at `node`; returns its floor, the node's end if nothing is live."""
        depth = floor = node.end
        while node.swa_live and depth - floor < self.window_pages:
            if not node.swa_lock:
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
        """Walks to the receipt's floor: tombstones may live again by now (sgl-project/sglang#24972)."""
        node = receipt.node
        while node.end > receipt.swa_floor:
            self._drop_swa_lock(node, receipt)
            node = node.parent

    def _drop_swa_lock(self, node: PrefixNode, receipt: Lock) -> None:
        if node.swa_lock <= 0:
            raise LockError(f"unlock: {node!r} has no SWA lock left for {receipt.holder!r}")
        node.swa_lock -= 1
        if not node.swa_lock:
            self.swa_protected -= node.end - node.start
            self.swa_evictable += node.end - node.start
            self.swa_queue.push(node)

    def check_integrity(self) -> list[str]:
        """One line for each breach of the contract; empty when all holds. O(nodes + locked paths)."""
        return prefix_audit.problems(self)


def _as_int64(verb: str, name: str, values: np.ndarray) -> np.ndarray:
    """`values` as a flat int64 array; raises ValueError for another shape or for floats."""
    array = np.asarray(values)
    if array.ndim != 1 or (len(array) and array.dtype.kind not in "iu"):
        raise ValueError(
            f"{verb}: {name} has shape {array.shape} and type {array.dtype}; pass one integer a page"
        )
    return array.astype(np.int64, copy=False)


def _duplicate_ranges(
    canonical: np.ndarray, pages: np.ndarray, protected: int, known: int, recovered: list[PageRange]
) -> list[PageRange]:
    """Ranges of [protected, known) where the caller's page is not the tree's and recovers nothing."""
    differs = canonical[:known] != pages[:known]
    differs[:protected] = False
    for low, high in recovered:
        differs[low:high] = False
    if not differs.any():
        return []
    flags = differs.tobytes()
    return [(low, high) for low, high in runs(flags, 0, known) if flags[low]]
