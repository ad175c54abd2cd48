"""Wraps a pool whose blocks are shared by reference count, by name and on the instance, and tells the ledger.

Fits vLLM's block pool: a linked free queue whose border says which blocks are lent and which come back, and
`get_new_blocks`, `touch` and `free_blocks`, which say who takes and gives up a reference. Read are the arguments and
answers of these methods and the ids of blocks; never the target's own counts, which are what is to be checked. Changes
nothing that the target does; an exception of the target passes through after what was seen has been told.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from stress.check.event import EventKind, PoolShape
from stress.check.shadow import Ledger
from stress.probe.counted_watch import CountedWatch

_TAKES = ("get_new_blocks", "touch")
_GIVES_UP = ("free_blocks", "unpin_blocks")
_LEAVES = ("popleft", "popleft_n", "remove")
_COMES = ("append", "append_n", "prepend_n")
KEPT = 1  # the token of a LEND that leaves in the pages what is in them

# By themselves: up to Python 3.11 a member is looked up on its class at the price of a call.
_LEND, _RETURN, _REF, _UNREF, _HIT = (
    EventKind.LEND,
    EventKind.RETURN,
    EventKind.REF,
    EventKind.UNREF,
    EventKind.HIT,
)


class WatchedBlocks:
    """The one pool. `target` is the block pool."""

    def __init__(self, shape: PoolShape, target) -> None:
        self.shape, self.target = shape, target
        self.name, self.page_size = shape.name, shape.page_size

    def free_pages(self) -> int:
        """As the target counts its free queue."""
        return self.target.get_num_free_blocks()

    def free_list(self) -> list[int]:
        """The free queue as it is linked, no further than twice its blocks: a broken one may go in a circle."""
        queue = self.target.free_block_queue
        block, tail, ids = queue.fake_free_list_head.next_free_block, queue.fake_free_list_tail, []
        for _ in range(2 * self.shape.pages):
            if block is None or block is tail:
                break
            ids.append(block.block_id)
            block = block.next_free_block
        return ids


class BlockWatch(CountedWatch):
    """Watches `manager.block_pool`, and what `manager.get_computed_blocks` finds for each of `groups`, by name."""

    def __init__(self, manager, shape: PoolShape, groups: tuple[str, ...], ledger: Ledger) -> None:
        pool = manager.block_pool
        super().__init__(WatchedBlocks(shape, pool), ledger)
        self._groups = groups
        self._taken_out: list[int] | None = None  # by the touch at hand
        for name in _TAKES:
            self._wrap(pool, name, self._taking)
        for name in _GIVES_UP:
            self._wrap(pool, name, self._giving_up)
        for name in _LEAVES:
            self._wrap(pool.free_block_queue, name, self._leaving)
        for name in _COMES:
            self._wrap(pool.free_block_queue, name, self._coming)
        self._wrap(manager, "get_computed_blocks", self._matching)

    def _wrap(self, owner, name: str, make: Callable[[str, Callable], Callable]) -> None:
        inner = getattr(owner, name, None)
        if inner is not None:
            setattr(owner, name, make(name, inner))

    def _taking(self, name: str, inner: Callable) -> Callable:
        """Blocks gain a reference: those that are new, or those that are named."""
        if name == "touch":

            def call(blocks: Iterable):
                blocks = list(blocks)
                self._enter(name)
                self._taken_out = []
                try:
                    inner(blocks)
                finally:
                    self._tell_taken_out()
                    self._leave()
                self._tell_references(_REF, [block.block_id for block in blocks], name)

        else:

            def call(*args, **kwargs):
                self._enter(name)
                try:
                    blocks = inner(*args, **kwargs)
                finally:
                    self._leave()
                self._tell_references(_REF, [block.block_id for block in blocks], name)
                return blocks

        return call

    def _giving_up(self, name: str, inner: Callable) -> Callable:
        def call(blocks: Iterable, *args, **kwargs):
            blocks = list(blocks)
            self._enter(name)
            self._tell_references(_UNREF, [block.block_id for block in blocks], name)
            try:
                return inner(blocks, *args, **kwargs)
            finally:
                self._leave()

        return call

    def _leaving(self, name: str, inner: Callable) -> Callable:
        def call(*args):
            answer = inner(*args)
            if name == "remove":
                self._tell_left([args[0].block_id])
            else:
                blocks = answer if name == "popleft_n" else [answer]
                self._tell_lent([block.block_id for block in blocks], name)
            return answer

        return call

    def _coming(self, name: str, inner: Callable) -> Callable:
        def call(blocks):
            named = [blocks] if name == "append" else list(blocks)
            try:
                return inner(blocks if name == "append" else named)
            finally:
                if named:
                    pages = [block.block_id for block in named]
                    self.tell(_RETURN, self.source.name, pages, None, self._method or name)

        return call

    def _matching(self, name: str, inner: Callable) -> Callable:
        def call(request, *args, **kwargs):
            answer = inner(request, *args, **kwargs)
            rid, cause = int(request.request_id), self.cause
            self.cause = cause.of(rid)
            for group, blocks in zip(self._groups, answer[0].blocks, strict=True):
                if blocks:
                    pages = [block.block_id for block in blocks]
                    self.tell(_HIT, self.source.name, pages, None, name, table=group)
            self.cause = cause
            return answer

        return call

    def _tell_left(self, pages: list[int]) -> None:
        """Blocks that were taken out of the middle of the queue, for what is in them."""
        if self._taken_out is None:
            self.tell(_LEND, self.source.name, pages, None, self._method or "remove", token=KEPT)
        else:
            self._taken_out += pages

    def _tell_taken_out(self) -> None:
        pages, self._taken_out = self._taken_out, None
        if pages:
            self._tell_left(pages)

    def _tell_lent(self, pages: list[int], name: str) -> None:
        if pages:
            self._tell_new(pages, self._method or name)
