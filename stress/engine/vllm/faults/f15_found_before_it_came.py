"""F15: what a load is to bring is in the prefix map before it has come.

As sgl-project/sglang#37592 and the TODO in its release_request: a load that was cancelled stayed in the tree. In vLLM the
connector asks the manager to wait with the keys (`delay_cache_blocks`); here they are published with the slots, so that
another request with the prefix starts on blocks that nothing has written, and those of a load that fails stay.
"""

from __future__ import annotations

from typing import Any

from allocator.faults.log import FaultLog


class FoundBeforeItCame:
    """Overrides Calls. Trigger: slots for a load of at least one whole block."""

    faults: FaultLog

    def allocate(
        self, request: Any, tokens: int, *, match: Any = None, external: int = 0, **more: Any
    ) -> bool:
        given = super().allocate(request, tokens, match=match, external=external, **more)
        if given and external >= self.page_size and self.faults.acts("F15"):
            self.publish(request, match.tokens + external)
        return given
