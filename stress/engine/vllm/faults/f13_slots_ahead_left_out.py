"""F13: a release goes by what was computed and leaves out the blocks that were given ahead for drafts.

As sgl-project/sglang#31616, #13826 and sglang-jax#1147. The drafts were rejected, the request ends, and nobody knows of
those blocks any more.
"""

from __future__ import annotations

from typing import Any

from allocator.faults.log import FaultLog


class SlotsAheadLeftOut:
    """Overrides Calls: the tables of a request that decodes are cut to what is computed before they are freed."""

    faults: FaultLog

    def free(self, request: Any) -> None:
        computed = request.num_computed_tokens
        ahead = []
        for group in self.groups:
            table = self._tables[group.name].req_to_blocks.get(request.request_id, [])
            ahead.append((table, -(-computed // group.page_size)))
        decodes = computed >= request.num_prompt_tokens
        if decodes and any(len(table) > whole for table, whole in ahead) and self.faults.acts("F13"):
            for table, whole in ahead:
                del table[whole:]
        super().free(request)
