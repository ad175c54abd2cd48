"""F10: a lock skips a tombstone, its unlock does not (sgl-project/sglang#24972, #36350; #27147 for Mamba).

Between the two a load, or another request's insert, brings the tombstone back to life. The unlock then gives up what
it never took: a lock that another holder took meanwhile, or, with the count below zero, the next one that is taken.
Either way something that is in use can be evicted.
"""

from __future__ import annotations

from collections.abc import Hashable

from allocator.faults.log import FaultLog
from allocator.prefix_node import Lock, PrefixNode


class UnlockOfRevived:
    """Overrides a PrefixCache. Remembers, by receipt, the page ranges that were tombstones when they were locked."""

    faults: FaultLog

    def __init__(self, *args, **kwargs) -> None:
        super().__init__(*args, **kwargs)
        self._tombstones: dict[int, list[tuple[int, int]]] = {}
        self._skips = "F10" in self.faults.acting

    def lock(self, node: PrefixNode, holder: Hashable) -> Lock:
        receipt = super().lock(node, holder)
        part, ranges = node, []
        while part.end > receipt.swa_floor:
            if not part.swa_live:
                ranges.append((part.start, part.end))
                part.swa_lock -= self._skips
            part = part.parent
        if ranges:
            self._tombstones[receipt.serial] = ranges
        return receipt

    def _unlock_swa(self, receipt: Lock) -> None:
        super()._unlock_swa(receipt)
        self._tombstones.pop(receipt.serial, None)

    def _drop_swa_lock(self, node: PrefixNode, receipt: Lock) -> None:
        ranges = self._tombstones.get(receipt.serial, ())
        skipped = any(start <= node.start < end for start, end in ranges)
        revived = skipped and node.swa_live and self.faults.acts("F10")
        if revived and node.swa_lock <= 0:
            node.swa_lock -= 1
        elif revived or not (skipped and self._skips):
            super()._drop_swa_lock(node, receipt)
