"""F27: new blocks are taken before another group's hit is: one block is in two tables (vllm-project/vllm#33775).

What a request hits in the prefix cache is free until it is touched. In 0.20.2 the blocks for tokens of a connector are
taken group by group, each behind its own hit and ahead of the next group's. Here the last group's hit is touched when
all slots are given. Each table has its reference, so the pool's own counts are right.
"""

from __future__ import annotations

from typing import Any

from allocator.faults.log import FaultLog
from stress.engine.vllm.calls import Match


class HitTakenLate:
    """Overrides Calls. Trigger: the blocks that the other groups are given next are among the last group's hit."""

    faults: FaultLog

    def allocate(
        self, request: Any, tokens: int, *, match: Match | None = None, external: int = 0, **more: Any
    ) -> bool:
        hit = () if match is None else match.blocks.blocks[-1]
        late = {block.block_id: block for block in hit if not block.is_null}
        if not late or not self._is_taken_first(request, tokens, match, external, late):
            return super().allocate(request, tokens, match=match, external=external, **more)
        touch = self.pool.touch
        if "F27" in self.faults.acting:
            self.pool.touch = lambda blocks: touch([block for block in blocks if block.block_id not in late])
        try:
            given = super().allocate(request, tokens, match=match, external=external, **more)
        finally:
            self.pool.touch = touch
        # Where there is no room nothing was touched.
        if given and self.faults.acts("F27"):
            held = self.table(request.request_id, self.groups[-1].name)
            touch([block for page, block in late.items() if page in held])
        return given

    def _is_taken_first(self, request: Any, tokens: int, match: Match, external: int, late: dict) -> bool:
        """Whether a block of `late` is among those of the free queue that the groups ahead of the last are given."""
        upto = match.tokens + external + tokens
        found = zip(self.groups[:-1], match.blocks.blocks, strict=False)
        count = sum(max(0, -(-upto // group.page_size) - len(hit)) for group, hit in found)
        own = {block.block_id for hit in match.blocks.blocks[:-1] for block in hit}
        block = self.pool.free_block_queue.fake_free_list_head.next_free_block
        while count and block is not None:
            if block.block_id not in own:  # those are touched first, and leave the queue
                if block.block_id in late:
                    return True
                count -= 1
            block = block.next_free_block
        return False
