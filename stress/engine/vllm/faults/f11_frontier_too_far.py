"""F11: a window's frontier stands one block too far, and a block goes that the next pass reads.

As sgl-project/sglang#22470 and #29860. Here a group's own manager is told of a block more than is computed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from allocator.faults.log import FaultLog
from stress.engine.groups import Group


class FrontierTooFar:
    """Overrides Calls: `remove_skipped_blocks` of the manager of each group with a window."""

    faults: FaultLog

    def __init__(self, *args, **kwargs) -> None:
        super().__init__(*args, **kwargs)
        for group in self.groups:
            if group.window:
                self._move_frontier(group, self._tables[group.name])

    def _move_frontier(self, group: Group, manager: Any) -> None:
        remove: Callable[..., None] = manager.remove_skipped_blocks

        def removing(request_id: str, computed: int, *args, **kwargs) -> None:
            place = manager.get_num_skipped_tokens(computed) // group.page_size
            table = manager.req_to_blocks.get(request_id, ())
            slides = 0 < place < len(table) and (place + 1) * group.page_size <= computed
            if slides and not table[place].is_null and self.faults.acts("F11"):
                computed += group.page_size
            remove(request_id, computed, *args, **kwargs)

        manager.remove_skipped_blocks = removing
