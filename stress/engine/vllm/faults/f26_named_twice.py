"""F26: one batched release names a block twice, and it goes on the free queue twice (vllm-project/vllm#42571).

In 0.20.2 a store may have a block twice, and a release counts all of its entries down before it puts those on the queue
that stand at zero. The links then lead past the blocks between the two, the queue counts one more than there are, and
who takes blocks next gets one twice, or runs into an assertion.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from allocator.faults.log import FaultLog


class NamedTwice:
    """Overrides Calls: `pool.free_blocks`. Trigger: several blocks come back by one call."""

    faults: FaultLog

    def __init__(self, *args, **kwargs) -> None:
        super().__init__(*args, **kwargs)
        self._release, self.pool.free_blocks = self.pool.free_blocks, self._release_twice

    def _release_twice(self, blocks: Iterable[Any]) -> None:
        named = list(blocks)
        self._release(named)
        came = [block for block in named if not (block.ref_cnt or block.is_null)]
        if len(came) > 1 and self.faults.acts("F26"):
            self.pool.free_block_queue.append_n(came[:1])
