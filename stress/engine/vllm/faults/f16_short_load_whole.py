"""F16: a load that came short counts as whole (as sgl-project/sglang#38352, ai-dynamo/dynamo#15079).

The worker has copied half of the blocks and reports the request's load as received. The connector publishes all of it,
and the request goes on with blocks that nothing has written.
"""

from __future__ import annotations

from allocator.faults.log import FaultLog
from stress.engine.vllm.offload import Copy


class ShortLoadWhole:
    """Overrides an Offload. Trigger: the end of a load of two blocks or more."""

    faults: FaultLog

    def came(self, copy: Copy) -> Copy:
        half = len(copy.pages) // 2
        if copy.kind != "load" or not half or not self.faults.acts("F16"):
            return super().came(copy)
        return copy._replace(pages=copy.pages[:half], host_pages=copy.host_pages[:half])
