"""F24: a request that hits its whole prompt takes over a ring row as it is (sgl-project/sglang#30339, ROCm/ATOM#1423).

The prompt's last window is neither computed again nor told from what the row's last owner left there.
"""

from __future__ import annotations

from allocator.faults.log import FaultLog
from stress.engine.contract import RequestSpec


class RingRowAsItIs:
    """Overrides a ReferenceEngine: a hit is not cut where the cache knows more, and the row has had an owner."""

    faults: FaultLog

    def _usable_pages(self, spec: RequestSpec) -> int:
        usable = super()._usable_pages(spec)
        if self.ring is None or not self.ring.ring.next_row_is_used():
            return usable
        whole = (spec.prompt_tokens - 1) // self.page_size
        if self.memory.cache.known_pages(spec.keys[:whole]) > usable and self.faults.acts("F24"):
            return whole
        return usable
