"""F05: a block that is lent anew is still found by the key of what was in it (vllm-project/vllm#4761).

The block loses its own note of the key and the prefix map keeps its entry. Whoever has that prefix next is given a
block that another request writes. The reference's fault of this number keeps what a page's slots mapped to.
"""

from __future__ import annotations

from typing import Any

from allocator.faults.log import FaultLog


class KeyKept:
    """Overrides Calls: `pool.get_new_blocks` leaves in the prefix map what it should take out of it."""

    faults: FaultLog

    def __init__(self, *args, **kwargs) -> None:
        super().__init__(*args, **kwargs)
        self._lending = False
        self._lend, self.pool.get_new_blocks = self.pool.get_new_blocks, self._lend_keeping
        known = self.pool.cached_block_hash_to_block
        self._take_out, known.pop = known.pop, self._leave_in

    def _lend_keeping(self, count: int) -> list[Any]:
        self._lending = True
        try:
            return self._lend(count)
        finally:
            self._lending = False

    def _leave_in(self, key: Any, block_id: int) -> Any:
        found = self.pool.cached_block_hash_to_block.get_one_block(key)
        is_found = found is not None and found.block_id == block_id
        if self._lending and is_found and self.faults.acts("F05"):
            return found
        return self._take_out(key, block_id)
