"""The per-request SWA ring of engines that keep the window outside the paged pools.

Each running request has one row of `ring_tokens` slots (sgl-project/sglang#38571). Position p lives in slot
p % ring_tokens, so a later position overwrites an earlier one and nothing is ever freed by page. Row 0 is
padding and is never lent. A row is not content addressed: whoever takes it next finds the last owner's tokens
in it (sgl-project/sglang#30339, ROCm/ATOM#1423). Hence two guards: a generation that grows at each acquire,
and `written_from`, the first position that this owner writes itself. A prefix hit writes nothing here, so its
window has to be computed again.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import NamedTuple

import numpy as np
import torch

FREE_GENERATION = -1


class RingRow(NamedTuple):
    """A lent row: its number (1..rows) and the generation under which its content counts."""

    row: int
    generation: int


class SWARing:
    """Rows of window slots. Sizes are in tokens; a row's storage is whole pages, row r's from page r * row_pages on."""

    def __init__(self, rows: int, ring_tokens: int, page_size: int) -> None:
        for name, value in (("rows", rows), ("ring_tokens", ring_tokens), ("page_size", page_size)):
            if value < 1:
                raise ValueError(f"SWARing: {name} is {value}; it must be at least 1")
        self.rows = rows
        self.ring_tokens = ring_tokens
        self.page_size = page_size
        self.row_pages = -(-ring_tokens // page_size)
        self.row_tokens = self.row_pages * page_size
        # Last in, first out: a row is reused as soon as possible, which brings stale content to light.
        self._free_rows = list(range(rows, 0, -1))
        self._generations = [0] * (rows + 1)
        self._owners: dict[int, Hashable] = {}
        self._written_from: dict[int, int] = {}

    def acquire(self, owner: Hashable, written_from: int = 0) -> RingRow:
        """Lends a row. `written_from`: first position that the owner writes itself, in tokens: 0, or after a
        prefix hit the start of the window that it computes again.

        Raises ValueError when all rows are lent.
        """
        if written_from < 0:
            raise ValueError(
                f"acquire: written_from is {written_from} for {owner!r}; a position is at least 0"
            )
        if not self._free_rows:
            raise ValueError(
                f"acquire: all {self.rows} ring rows are lent, none for {owner!r}; check free_rows() first"
            )
        row = self._free_rows.pop()
        self._generations[row] += 1
        self._owners[row] = owner
        self._written_from[row] = written_from
        return RingRow(row, self._generations[row])

    def release(self, lent: RingRow) -> None:
        """Takes a row back. Raises ValueError if it is not lent under this generation (a second release)."""
        if self.generation(lent.row) != lent.generation:
            raise ValueError(
                f"release: row {lent.row} is not lent under generation {lent.generation}; release it once"
            )
        del self._owners[lent.row]
        del self._written_from[lent.row]
        self._free_rows.append(lent.row)

    def available_size(self) -> int:
        """Free window storage in tokens: free rows times the cost of one (sgl-project/sglang#38571)."""
        return len(self._free_rows) * self.row_tokens

    def get_all_free_pages(self) -> torch.Tensor:
        """Pages of the free rows, int64[free pages], those that are lent next last."""
        return torch.from_numpy(self.pages_of(np.array(self._free_rows, dtype=np.int64)))

    def free_rows(self) -> int:
        """Rows that can be acquired now."""
        return len(self._free_rows)

    def next_row_is_used(self) -> bool:
        """Whether the row that is lent next has had an owner before: its tokens are still in it."""
        return bool(self._free_rows) and self._generations[self._free_rows[-1]] > 0

    def pages_of(self, rows: np.ndarray | int) -> np.ndarray:
        """Pages of the ring's storage that rows are made of, int64[rows * row_pages]."""
        first = np.atleast_1d(np.asarray(rows, dtype=np.int64)) * self.row_pages
        return (first[:, None] + np.arange(self.row_pages)).reshape(-1)

    def written_from(self, row: int) -> int:
        """First position that the owner of a lent row writes itself."""
        return self._written_from[row]

    def owner(self, row: int) -> Hashable | None:
        """Who has the row, or None."""
        return self._owners.get(row)

    def generation(self, row: int) -> int:
        """The generation under which the row is lent; FREE_GENERATION while it is not."""
        return self._generations[row] if row in self._owners else FREE_GENERATION

    def slot(self, pos: int) -> int:
        """The slot of a position inside its row."""
        return pos % self.ring_tokens

    def slots(self, row: int, positions: np.ndarray) -> np.ndarray:
        """Slots of positions (int64[n]) in the ring's storage, where row r starts at r * row_tokens."""
        return row * self.row_tokens + np.asarray(positions, dtype=np.int64) % self.ring_tokens

    def valid(self, row: int, generation: int, pos: int, committed: int) -> bool:
        """Whether position `pos` of a request with `committed` tokens can still be read from the row.

        written_from ........ committed - ring_tokens ........ committed
        [ overwritten        )[ readable                      )[ not written
        """
        if generation == FREE_GENERATION or self.generation(row) != generation:
            return False
        return max(committed - self.ring_tokens, self._written_from[row], 0) <= pos < committed
