"""Tells copies between a pool whose pages are shared by count and its host's memory, and carries what is in them."""

from __future__ import annotations

from typing import Protocol

from stress.check.event import EventKind
from stress.content.group_content import GroupContent
from stress.probe.block_watch import BlockWatch

_BEGIN, _END = EventKind.TRANSFER_BEGIN, EventKind.TRANSFER_END


class Copy(Protocol):
    """`pages` of the pool and `host_pages` pair by pair; `kind`: load or offload."""

    ticket: int
    kind: str
    pages: list[int]
    host_pages: list[int]


class OffloadWatch:
    """Hooks `offload.on_begin`, `on_copy` and `on_end`: a page is held from the first to the last of them; a store
    takes what it holds at the second."""

    def __init__(self, offload, watch: BlockWatch, content: GroupContent | None) -> None:
        self._watch, self._content = watch, content
        offload.on_begin, offload.on_copy, offload.on_end = self._begun, self._copied, self._ended

    def _begun(self, copy: Copy) -> None:
        watch = self._watch
        watch.take_cause()
        watch.tell(_BEGIN, watch.source.name, copy.pages, None, copy.kind, token=copy.ticket)

    def _copied(self, copy: Copy) -> None:
        if self._content is not None and copy.kind == "offload":
            self._content.copy_out(copy.pages, copy.host_pages)

    def _ended(self, copy: Copy) -> None:
        watch = self._watch
        watch.call += 1
        watch.take_cause()
        if self._content is not None and copy.kind == "load":
            self._content.copy_in(copy.host_pages, copy.pages)
        watch.tell(_END, watch.source.name, copy.pages, None, "done", token=copy.ticket)
