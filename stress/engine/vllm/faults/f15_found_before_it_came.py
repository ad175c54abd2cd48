"""F15: what a load is to bring is in the prefix map before it has come.

As sgl-project/sglang#37592 and the TODO in its release_request: a load that was cancelled stayed in the tree. vLLM
gives slots for a load without their keys and publishes those when it has come; here they are published as it begins.
Another request with the prefix starts on blocks that nothing has written.
"""

from __future__ import annotations

from allocator.faults.log import FaultLog
from stress.engine.vllm.admission import Running


class FoundBeforeItCame:
    """Overrides a VllmEngine. Trigger: a load of at least one whole block begins."""

    faults: FaultLog

    def _match(self, rid: int) -> Running | None:
        admitted = super()._match(rid)
        begun = self._loading.get(rid)
        if begun is not None and begun.loaded >= self.page_size and self.faults.acts("F15"):
            self.calls.publish(begun.request, begun.cached + begun.loaded)
        return admitted
