"""F13: a reserve for drafts lends whole pages and records a length that does not end with one.

sgl-project/sglang#31616, #13826, sglang-jax#1147. The release goes by whole pages of what is recorded: when the drafts
behind a page's edge were rejected, the page that was lent for them is not among them.
"""

from __future__ import annotations

from allocator.faults.log import FaultLog


class RecordedUnaligned:
    """Overrides a ReferenceEngine. `_recorded`: request -> committed + reserved tokens as of its last reserve."""

    faults: FaultLog

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self._recorded: dict[int, int] = {}

    def reserve(self, rows: list[tuple[int, int]]) -> bool:
        reserved = super().reserve(rows)
        if reserved:
            self._recorded.update((rid, self._rows[rid].committed + tokens) for rid, tokens in rows)
        return reserved

    def _leave(self, rid: int) -> None:
        row, page_size = self._rows[rid], self.page_size
        recorded = self._recorded.pop(rid, row.allocated) // page_size * page_size
        released = max(recorded, self.memory.pages_for(row.committed) * page_size)
        if released < row.allocated and self.faults.acts("F13"):
            row.allocated = released
        super()._leave(rid)
