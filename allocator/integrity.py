"""Audits of allocator state from outside the hot path: what is wrong, in words, or [].

Host arrays in, sentences out; nothing is changed. They look at one moment only: a page freed while someone
still uses it looks like any free page here, which is why a tester watches the calls as well.
"""

from __future__ import annotations

import numpy as np


def free_list_faults(free_pages: np.ndarray, num_pages: int) -> list[str]:
    """Of int64[free] page ids: ids outside 1..num_pages and ids that are there more than once. O(n log n)."""
    free = np.sort(free_pages)
    faults = []
    outside = free[(free < 1) | (free > num_pages)]
    if len(outside):
        faults.append(f"free list holds {len(outside)} ids outside 1..{num_pages}, first {outside[0]}")
    twice = np.unique(free[1:][free[1:] == free[:-1]])
    if len(twice):
        faults.append(f"free list holds {len(twice)} pages more than once, first {twice[0]}")
    return faults


def mapping_faults(swa_slots: np.ndarray, swa_free_pages: np.ndarray) -> list[str]:
    """Of the FULL -> SWA map, int64[full pages + 1, page_size] with 0 = no peer, and the SWA free list.

    Mapped slots of a FULL page lie in one SWA page at their own offsets; an SWA page has one FULL page and is
    not free; page 0 of either pool takes no part. O(slots).
    """
    page_size = swa_slots.shape[1]
    mapped = swa_slots != 0
    pages = swa_slots // page_size
    peer = pages.max(axis=1)
    peers, owners = np.unique(peer[peer > 0], return_counts=True)
    moved = mapped & (swa_slots % page_size != np.arange(page_size))
    return [
        f"{len(found)} {what}, first {found[0]}"
        for found, what in (
            (
                np.flatnonzero((mapped & (pages != peer[:, None])).any(axis=1)),
                "FULL pages map into two SWA pages",
            ),
            (np.flatnonzero(moved.any(axis=1)), "FULL pages map to other offsets than their own"),
            (np.flatnonzero((mapped & (pages < 1)).any(axis=1)), "FULL pages map into SWA padding"),
            (np.flatnonzero(mapped[:1].any(axis=1)), "FULL padding pages have a peer"),
            (peers[owners > 1], "SWA pages have more than one FULL page"),
            (np.intersect1d(peers, swa_free_pages), "SWA pages are mapped and on the free list"),
        )
        if len(found)
    ]
