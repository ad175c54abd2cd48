"""F20: transfers are agreed over all ranks instead of the attention-TP group (sgl-project/sglang#7158).

Under DP attention the ranks of another group have transfers of their own, or none: an idle one does not come.
"""

from __future__ import annotations

from allocator.faults.log import FaultLog


class WrongGroup:
    """Overrides a TPGroup."""

    faults: FaultLog

    def ranks_of(self, collective: str) -> range:
        ranks = super().ranks_of(collective)
        if collective == "transfers" and self.layout.dp_size > 1 and self.faults.acts("F20"):
            return range(self.layout.ranks)
        return ranks
