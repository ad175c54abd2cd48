"""F19: a rank loads the longest prefix that its own store can restore, not the longest that all of its group can.

LMCache/LMCache#1379. The smallest of the members' longest would be wrong too: with a window that is restored not every
end is valid, and of {4, 8} and {4, 12} pages only 4 is. The rule looks at what each member has told, so it sees both.
"""

from __future__ import annotations

import numpy as np

from allocator.faults.log import FaultLog
from linker.agreed_linker import AgreedLinker


class OwnLongest:
    """Overrides an External."""

    faults: FaultLog

    def restorable(self, keys: np.ndarray, local_pages: int) -> int:
        pages = super().restorable(keys, local_pages)
        if not isinstance(self.linker, AgreedLinker) or local_pages >= len(keys):
            return pages
        longest = self.longest(self.linker.own, keys, local_pages)
        return longest if longest != pages and self.faults.acts("F19") else pages
