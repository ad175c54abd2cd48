"""What an engine says besides the contract whose pages are objects that carry their own reference counts.

`observes` of such an engine has `page_objects`, and `references`: it is a `stress.engine.groups.GroupedEngine` too.
"""

from __future__ import annotations

from typing import Any, Protocol


class PageObjects(Protocol):
    """What `allocators()` gives. `target`: the pool, whose methods the probe wraps; its pages are in `free_blocks`,
    all of them when it is built."""

    target: Any

    def page_of(self, page: Any) -> int:
        """The number of one of its objects, from the pool's first page on."""

    def free_pages(self) -> int:
        """As the target counts them."""


class AskingEngine(Protocol):
    """What the probe reads of the engine. `asking`: the request that the call at hand is for, -1: none, or several."""

    step: str
    asking: int
