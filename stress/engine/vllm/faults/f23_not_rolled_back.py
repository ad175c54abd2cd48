"""F23: an allocation that fails in the second group keeps what it took for the first (as ovg-project/kvcached#364).

The groups share one pool, and the release asks for all of them before it takes anything. Here the first group's blocks
are taken, the rest does not fit, the answer is "no room", and nobody has those blocks. Each retry takes more of them.
"""

from __future__ import annotations

from allocator.faults.log import FaultLog


class NotRolledBack:
    """Overrides a VllmEngine. Trigger: slots are refused although there is room for the first group's."""

    faults: FaultLog

    def _lengthen(self, rows: list[tuple[int, int]], *, drafts: bool) -> bool:
        given = super()._lengthen(rows, drafts=drafts)
        if not given:
            pool, group = self.calls.pool, self.groups[0]
            short = sum(self.calls.pages_short_in(str(rid), group, upto) for rid, upto in rows)
            if 0 < short <= pool.get_num_free_blocks() and self.faults.acts("F23"):
                pool.get_new_blocks(short)
        return given
