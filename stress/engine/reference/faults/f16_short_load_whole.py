"""F16: a short load counts as success, and the rank does not wait for what the others say of it.

sgl-project/sglang#38352, ai-dynamo/dynamo#15079. One rank goes on with pages that nothing has written; the others of
its group have agreed that the load came short, and compute the rest.
"""

from __future__ import annotations

from allocator.faults.log import FaultLog
from linker.contract import Completion


class ShortLoadWhole:
    """Overrides an AgreedLinker. `_taken`: tickets of loads that came short here and are taken for whole."""

    faults: FaultLog

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self._taken: dict[int, int] = {}

    def collect(self, now_us: int) -> None:
        super().collect(now_us)
        for ticket, transfer in self._open.items():
            short = 0 < self._verdicts.get(ticket, 0) < transfer.pages
            if transfer.kind == "load" and short and ticket not in self._taken and self.faults.acts("F16"):
                self._taken[ticket] = transfer.pages

    def poll(self, now_us: int) -> list[Completion]:
        return [self._as_taken(completion) for completion in super().poll(now_us)]

    def _as_taken(self, completion: Completion) -> Completion:
        whole = self._taken.pop(completion.ticket, None)
        return completion if whole is None else completion._replace(pages=whole, ok=True)
