"""Tells which pages are found by a key, where a pool keeps the map of keys itself and publishes as slots are given.

`cache_full_blocks` of the pool says which pages get a key. What `get_new_blocks` lends must have lost the one of what
was in it: the map is asked for that key, which the watch has kept. `evict_blocks`, and a release of a page that has no
key any more, take a key back without a lend. All by name and on the instance; changes nothing that the target does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from stress.check.event import STILL_FOUND, EventKind
from stress.probe.block_watch import BlockWatch

_PUBLISHED, _FORGOTTEN = EventKind.PUBLISHED, EventKind.FORGOTTEN


class PublishWatch:
    """`pool` is the block pool, of groups with these names; what is told goes through `watch`."""

    def __init__(self, pool, groups: tuple[str, ...], watch: BlockWatch) -> None:
        self._pool, self._groups, self._watch = pool, groups, watch
        self._keys: dict[int, object] = {}  # by page: the key that it was published by
        pool.cache_full_blocks = self._publishing(pool.cache_full_blocks)
        pool.get_new_blocks = self._lending(pool.get_new_blocks)
        pool.evict_blocks = self._evicting(pool.evict_blocks)
        pool.free_blocks = self._releasing(pool.free_blocks)

    def _publishing(self, inner: Callable) -> Callable:
        def call(request, blocks, num_cached_blocks, num_full_blocks, block_size, kv_cache_group_id, **more):
            inner(
                request=request,
                blocks=blocks,
                num_cached_blocks=num_cached_blocks,
                num_full_blocks=num_full_blocks,
                block_size=block_size,
                kv_cache_group_id=kv_cache_group_id,
                **more,
            )
            # Some get none: the null block, and what no prefix of a usable length ends with.
            new = {
                block.block_id: block.block_hash
                for block in blocks[num_cached_blocks:num_full_blocks]
                if block.block_hash is not None
            }
            self._keys.update(new)
            if pages := list(new):
                with self._watch.about(int(request.request_id)):
                    self._tell(_PUBLISHED, pages, "cache_full_blocks", table=self._groups[kv_cache_group_id])

        return call

    def _lending(self, inner: Callable) -> Callable:
        def call(*args, **kwargs):
            blocks = inner(*args, **kwargs)
            known = [block for block in blocks if block.block_id in self._keys]
            still = [block.block_id for block in known if self._finds(self._keys.pop(block.block_id), block)]
            if still:
                self._tell(_PUBLISHED, still, "get_new_blocks", token=STILL_FOUND)
            return blocks

        return call

    def _finds(self, key: object, block) -> bool:
        """Whether the map has the block under the key, where it may have others too."""
        found = self._pool.cached_block_hash_to_block
        contain = getattr(found, "contain", None)
        return found.get_one_block(key) is block if contain is None else contain(key, block.block_id)

    def _evicting(self, inner: Callable) -> Callable:
        def call(block_ids: Iterable[int]):
            pages = sorted(block_ids)
            inner(set(pages))
            self._forget([self._pool.blocks[page] for page in pages], "evict_blocks")

        return call

    def _releasing(self, inner: Callable) -> Callable:
        def call(blocks: Iterable):
            blocks = list(blocks)
            inner(blocks)
            self._forget(blocks, "free_blocks")

        return call

    def _forget(self, blocks: list, method: str) -> None:
        keys = self._keys
        gone = [block.block_id for block in blocks if block.block_hash is None and block.block_id in keys]
        if gone:
            for page in gone:
                del keys[page]
            self._tell(_FORGOTTEN, gone, method)

    def _tell(self, kind: EventKind, pages: list[int], method: str, **more) -> None:
        self._watch.tell(kind, self._watch.source.name, pages, None, method, **more)
