"""F15: a load that is cancelled before it starts leaves its node in the tree.

SGLang's `release_request` had this as a TODO: nothing took back what was published before it cancelled. Up to 0.5.21 a
load is published when it is queued. Here it is published by the request that leaves, which comes to the same: the next
request with that prefix hits pages that nothing has written, and reads them.
"""

from __future__ import annotations

from allocator.faults.log import FaultLog
from stress.engine.reference.publish import insert
from stress.engine.reference.row import Row


class CancelledLoadPublished:
    """Overrides an External."""

    faults: FaultLog

    def cancel_load(self, row: Row) -> None:
        if self.is_queued(row) and self.faults.acts("F15"):
            insert(self.memory, row, row.held, finished=False)
        super().cancel_load(row)
