"""Page-granular radix cache over FULL and SWA pages: match and insert; locks and eviction are below it.

Keys: one int64 a page; a page's key names the whole prefix up to its end. Values: FULL page ids, and whether
the page has SWA slots. Ranges of pages are indices into the keys.
Must hold: a FULL value never changes while it is in the tree, since others may have it in their rows
(sgl-project/sglang#29352); `check_integrity()` is empty.
Differs from upstream on purpose: pages without a peer are inserted as tombstones, not as live zeros; a tombstone
that is recovered keeps its FULL page also where nobody has it locked.
"""

from __future__ import annotations

import numpy as np

from allocator import prefix_audit
from allocator.page_ranges import PageRange, joined_ranges, runs
from allocator.prefix_locks import PrefixLocks
from allocator.prefix_node import Inserted, Match, PrefixNode
from allocator.prefix_tree import NO_PAGES


class PrefixCache(PrefixLocks):
    """The prefix cache of one rank.

    window_pages: pages that a sliding window of the model can touch, >= 1.
    swa_gates_match: cut a hit so that its window is SWA live. False for engines whose linker skips SWA.
    swa: False where no paged SWA pool exists (a ring); then every page is a tombstone, nothing is recovered.
    """

    def __init__(self, window_pages: int, swa_gates_match: bool, *, swa: bool = True) -> None:
        if window_pages < 1:
            raise ValueError(f"PrefixCache: window_pages is {window_pages}; a window touches at least 1 page")
        if swa_gates_match and not swa:
            raise ValueError(
                "PrefixCache: swa_gates_match needs paged SWA; pass swa_gates_match=False with swa=False"
            )
        super().__init__(window_pages)
        self.swa_gates_match = swa_gates_match
        self.swa = swa

    def match(self, keys: np.ndarray) -> Match:
        """Longest usable prefix of `keys` (int64[n]), in whole pages and whole nodes; what is hit in part is split.

        A hit may end behind a live window: its last `window_pages` pages, or all of them if there are fewer,
        are SWA live. Without `swa_gates_match` it may also end with a tombstone, but not inside a live run that
        is shorter than a window (sglang `SWAComponent.create_match_validator`). Marks the path as used. No hit:
        the root and no pages.
        """
        path, known = self._walk(_as_int64("match", "keys", keys))
        self._split_end(path, known)
        path, end = self._cut_to_usable(path, known)
        if not path:
            return Match(NO_PAGES, self.root, 0, known)
        self._touch(path)
        self._renew_window(path[-1])
        swa_from = end
        for node in reversed(path):
            if not node.swa_live:
                break
            swa_from = node.start
        return Match(np.concatenate([node.pages for node in path]), path[-1], swa_from, known)

    def usable(self, keys: np.ndarray) -> int:
        """Pages of `keys` (int64[n]) that `match` would hit now; changes nothing."""
        path, known = self._walk(_as_int64("usable", "keys", keys))
        return min(known, self._cut_to_usable(path, known)[1])

    def _cut_to_usable(self, path: list[PrefixNode], end: int) -> tuple[list[PrefixNode], int]:
        """Drops nodes from the deep end until a hit may end there.

        live  live  tomb  live          window_pages = 2; run [3, 4) is too short
        [0    1) [1 2) [2 3) [3 4)      gated: run [0, 2) is kept; else: all up to the tombstone
        """
        kept = len(path)
        for index in range(len(path) - 1, -1, -1):
            node = path[index]
            if not node.swa_live and not self.swa_gates_match:
                return path[: index + 1], node.end
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
        self._touch(path)
        self._split_end(path, known)
        live_bytes = live.tobytes()
        path, recovered = self._recover_path(path, pages, live_bytes)
        canonical = pages.copy()
        if path:
            canonical[:known] = np.concatenate([node.pages for node in path])
        duplicates = _duplicate_ranges(canonical, pages, protected, known, recovered)
        adopted = self._adopted_ranges(live_bytes, known, len(keys))
        end = path[-1] if path else self.root
        for low, high in adopted:
            end = self._adopt(
                end, low, keys[low:high].tobytes(), pages[low:high].copy(), bool(live_bytes[low])
            )
        self._renew_window(end)
        return Inserted(end, canonical, duplicates, recovered, adopted)

    def _adopted_ranges(self, live: bytes, low: int, high: int) -> list[PageRange]:
        """What a new suffix is cut into: runs of one SWA state, and the last window of a live one by itself.

        So a lock on the end pins one window and not the whole suffix (sglang `_maybe_split_leaf_for_swa_lock`).
        """
        ranges = []
        for start, stop in runs(live, low, high):
            if live[start] and stop - start > self.window_pages:
                ranges.append((start, stop - self.window_pages))
                start = stop - self.window_pages
            ranges.append((start, stop))
        return ranges

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
