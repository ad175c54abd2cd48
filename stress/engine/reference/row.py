"""What one admitted request holds: its row of FULL pages and the cursors that split it.

    0 ........ protected ........ cursor ........ committed ........ allocated
    | the cache's | private, SWA    | private, SWA    | reserved for
    | own pages   | given back      | in the window   | drafts

All positions are tokens; `protected` and `cursor` are page-aligned. The cursor may lie below `protected`: then
nothing private has been given back yet. A load that skips SWA leaves the cursor where it was unless the engine
is told otherwise (`cursor_moved`), which is upstream's state before sgl-project/sglang#38269.
"""

from __future__ import annotations

import numpy as np

from stress.engine.contract import RequestSpec

NO_PAGES = np.zeros(0, dtype=np.int64)


class Row:
    __slots__ = (
        "_pages",
        "allocated",
        "branch",
        "committed",
        "cursor",
        "held",
        "keys",
        "load_ticket",
        "protected",
        "receipt",
        "ring_end",
        "ring_named",
        "ring_row",
        "spec",
        "swa_from",
    )

    def __init__(self, spec: RequestSpec, keys: np.ndarray, spare_pages: int) -> None:
        self.spec = spec
        self.keys = keys  # by which cache and store find its pages, int64[pages]
        self._pages = np.zeros(len(spec.keys) + spare_pages, dtype=np.int64)
        self.held = 0  # pages in the row
        self.committed = self.allocated = self.protected = self.cursor = self.swa_from = 0
        self.branch: int | None = None  # where FULL knew more than the hit: the next insert ends there
        self.receipt = None  # the lock on the cached prefix
        self.load_ticket: int | None = None
        self.ring_row = None
        self.ring_end = 0  # page of the row behind the last one that the ring has had
        self.ring_named = (
            NO_PAGES  # by place in the ring: the FULL page whose entry names it, 0: none of ours
        )

    @property
    def pages(self) -> np.ndarray:
        """FULL page ids, int64[held]: a view of the row."""
        return self._pages[: self.held]

    def append(self, pages: np.ndarray) -> None:
        end = self.held + len(pages)
        if end > len(self._pages):
            self._pages = np.concatenate([self._pages[: self.held], np.zeros(end, dtype=np.int64)])
        self._pages[self.held : end] = pages
        self.held = end
