"""F17: a preempted or ended request's blocks go while a store still reads them (vllm-project/vllm#52360).

sgl-project/sglang#31427 and TRT-LLM#12542 too. With the request goes the store's own reference, so the blocks are lent
to the next one, whose keys and values may be saved under the first one's key. When the store ends it gives nothing up.
"""

from __future__ import annotations

from typing import Any

from allocator.faults.log import FaultLog
from stress.engine.vllm.offload import Copy


class PinGivenUp:
    """Overrides an Offload. Trigger: a request has lost its blocks and a store under way alone holds some."""

    faults: FaultLog

    def __init__(self, *args, **kwargs) -> None:
        super().__init__(*args, **kwargs)
        self._ending = False
        self._let_go: dict[int, list[int]] = {}  # by ticket: blocks whose reference is given up already

    def preempted(self, request: Any) -> None:
        super().preempted(request)
        self._give_up_pins()

    def finished(self, request: Any) -> None:
        super().finished(request)
        self._ending = True

    def scheduled(self, tokens: dict[Any, int], now_us: int) -> None:
        if self._ending:
            self._ending = False
            self._give_up_pins()
        super().scheduled(tokens, now_us)

    def _give_up_pins(self) -> None:
        pool = self._calls.pool
        for copy in self.stores_under_way():
            gone = self._let_go.get(copy.ticket, ())
            alone = [page for page in copy.pages if pool.blocks[page].ref_cnt == 1 and page not in gone]
            if alone and self.faults.acts("F17"):
                self._let_go.setdefault(copy.ticket, []).extend(alone)
                pool.free_blocks([pool.blocks[page] for page in alone])

    def came(self, copy: Copy) -> Copy:
        """The connector gives the store's references up now: those that are gone are taken for it."""
        pool = self._calls.pool
        pool.touch([pool.blocks[page] for page in self._let_go.pop(copy.ticket, ())])
        return super().came(copy)
