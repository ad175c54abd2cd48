"""F28: slots that are taken back in the step that gave them leave their keys in the prefix map.

vllm-project/vllm#57580, and #43569, which is to roll such keys back. A prefix is published when its slots are given.
Where the step then runs short and a request loses its slots again, nothing will ever write those blocks, and the next
request with the prefix starts beyond what was computed. Here a batch is given slots row by row until one does not fit.
"""

from __future__ import annotations

from typing import Any

from allocator.faults.log import FaultLog


class KeysNotTakenBack:
    """Overrides a VllmEngine. Trigger: slots are refused to rows of which the first alone fits and fills a block."""

    faults: FaultLog

    def _lengthen(self, rows: list[tuple[int, int]], *, drafts: bool) -> bool:
        if super()._lengthen(rows, drafts=drafts):
            return True
        rid, upto = rows[0]
        request = self._running[rid].request
        computed, size = request.num_computed_tokens, self.page_size
        now = 1 if drafts else upto - computed
        known = min(computed + now, request.num_tokens)
        fits = 0 < self.pages_short(rid, upto) <= self.calls.pool.get_num_free_blocks()
        # A block that it had before is its own to write all the same.
        fills = known // size > -(-computed // size)
        if fits and fills and self.faults.acts("F28"):
            self._give_and_take_back(request, now, upto - computed - now)
        return False

    def _give_and_take_back(self, request: Any, tokens: int, ahead: int) -> None:
        calls, rid = self.calls, request.request_id
        before = {group.name: len(calls.table(rid, group.name)) for group in self.groups}
        calls.allocate(request, tokens, ahead=ahead)
        for name, length in before.items():
            manager = calls.manager_of(name)
            table = manager.req_to_blocks[rid]
            taken, table[length:] = table[length:], []
            manager.num_cached_block[rid] = min(manager.num_cached_block[rid], length)
            calls.pool.free_blocks(reversed(taken))
