"""One node of the page-granular prefix tree, and the records the tree hands out.

A node owns the pages `[start, end)` of every prefix that passes through it. Keys are kept as raw bytes, eight
a page, so that comparing a whole node is one memcmp. `swa_live` says that its pages have window slots; False is
an SWA tombstone. `backed_up`: its pages are in the external store or on their way there. `last_use` is a tick
that only grows and orders FULL eviction; `older` and `newer` link the nodes that are SWA live in order of use.
A split gives the FRONT half to a new node: whoever holds the old node still holds the same deep end.
"""

from __future__ import annotations

import sys
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from allocator.page_ranges import PageRange

KEY_BYTES = 8


class LockError(ValueError):
    """A lock was released twice, or a count would fall below zero."""


class PrefixNode:
    """A run of pages with one SWA state. `full_lock` and `swa_lock` count the receipts that cover it."""

    __slots__ = (
        "backed_up",
        "children",
        "end",
        "full_lock",
        "key_bytes",
        "last_use",
        "newer",
        "node_id",
        "older",
        "pages",
        "parent",
        "start",
        "swa_live",
        "swa_lock",
    )

    def __init__(
        self,
        node_id: int,
        parent: PrefixNode | None,
        start: int,
        key_bytes: bytes,
        pages: np.ndarray,
        swa_live: bool,
    ) -> None:
        self.node_id = node_id
        self.parent = parent
        self.start = start
        self.end = start + len(pages)
        self.key_bytes = key_bytes
        self.pages = pages
        self.swa_live = swa_live
        self.children: dict[int, PrefixNode] = {}
        self.full_lock = 0
        self.swa_lock = 0
        self.last_use = 0
        self.backed_up = False
        self.older: PrefixNode | None = None
        self.newer: PrefixNode | None = None

    @property
    def keys(self) -> np.ndarray:
        """Page keys, int64[end - start], read only."""
        return np.frombuffer(self.key_bytes, dtype=np.int64)

    @property
    def first_key(self) -> int:
        """The key under which the parent lists this node."""
        return int.from_bytes(self.key_bytes[:KEY_BYTES], sys.byteorder, signed=True)

    def shared_pages(self, key_bytes: bytes) -> int:
        """Length in pages of the prefix that this node's keys share with `key_bytes` (8 bytes a page)."""
        pages = min(len(key_bytes), len(self.key_bytes)) // KEY_BYTES
        ours = np.frombuffer(self.key_bytes, dtype=np.int64, count=pages)
        theirs = np.frombuffer(key_bytes, dtype=np.int64, count=pages)
        differ = np.flatnonzero(ours != theirs)
        return int(differ[0]) if len(differ) else pages

    def split_front(self, node_id: int, pages: int) -> PrefixNode:
        """Moves the first `pages` pages into a new parent and returns it; self stays the deep half.

            parent -> [start ........ end)            before
            parent -> [start .. cut) -> [cut .. end)  after: new node, then self

        Both halves keep the lock counts: every receipt covers a node to its deep end, so it covers both.
        """
        front = PrefixNode(
            node_id,
            self.parent,
            self.start,
            self.key_bytes[: pages * KEY_BYTES],
            self.pages[:pages],
            self.swa_live,
        )
        front.full_lock, front.swa_lock, front.backed_up = self.full_lock, self.swa_lock, self.backed_up
        self.parent.children[front.first_key] = front
        self.key_bytes = self.key_bytes[pages * KEY_BYTES :]
        self.pages = self.pages[pages:]
        self.start = front.end
        self.parent = front
        front.children[self.first_key] = self
        return front

    def __repr__(self) -> str:
        state = "live" if self.swa_live else "tombstone"
        return f"PrefixNode({self.node_id}, pages [{self.start}, {self.end}), SWA {state})"


class Match(NamedTuple):
    """The longest usable cached prefix of a key list.

    pages: FULL page ids, int64[n]. node: its deep end, to be locked. swa_from: index of the first page of the
    SWA-live run that ends the hit; n if its last page is a tombstone. known: pages that FULL alone would hit, >= n.
    """

    pages: np.ndarray
    node: PrefixNode
    swa_from: int
    known: int


class Inserted(NamedTuple):
    """What an insert did, as disjoint page ranges `(low, high)` into the caller's keys.

    node: the deep end, to be locked. pages: FULL ids that the row must use from now on, int64[n]: the tree's
      copy where it had one, else the caller's.
    duplicates: the tree has another page for the key; the caller frees both components of its own.
    recovered: tombstones that are live again. The tree keeps its FULL page, so the caller moves the SWA peer
      of its copy over to the page in `pages`, and frees the FULL part of its copy if that is another page.
    adopted: pages that now belong to the tree, one range a node.
    """

    node: PrefixNode
    pages: np.ndarray
    duplicates: list[PageRange]
    recovered: list[PageRange]
    adopted: list[PageRange]


class Evicted(NamedTuple):
    """One victim. pages: its FULL ids, int64[n].

    component "full": the node is gone, and its SWA slots with it if swa_live; also for a leaf that `evict_swa`
    takes. component "swa": the node stays as a tombstone, and only its SWA slots go.
    """

    pages: np.ndarray
    swa_live: bool
    component: Literal["full", "swa"]


@dataclass(slots=True, eq=False)
class Lock:
    """A receipt: FULL is locked on the path from `node` to the root, SWA on the pages `[swa_floor, depth)`.

    The range is fixed when the lock is taken: nodes may split, and parts may be evicted or come back to life,
    before it is released (sgl-project/sglang#24972).
    """

    serial: int
    holder: Hashable
    node: PrefixNode
    swa_floor: int
    depth: int
    held: bool = True
    swa_held: bool = True


class PageCounts(NamedTuple):
    """Pages in the tree by component: protected means covered by a lock, evictable the rest."""

    full_evictable: int
    full_protected: int
    swa_evictable: int
    swa_protected: int
