"""The calls of vLLM's scheduler to its KV-cache manager, by feature: match, allocate, cache, free.

Upstream's scheduler matches a request and gives it slots at once, and everything else is part of giving slots: what
left the window goes, hits are taken, and the hashes of all pages that the coming forward pass will fill are published
before it runs. `step` says which of that is going on.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from stress.engine.contract import RequestSpec
from stress.engine.groups import Group
from stress.engine.vllm.features import accepted
from stress.engine.vllm.substitutes import page_hash
from stress.engine.vllm.tree_import import VllmTree


def _few_objects(tokens: np.ndarray) -> list[int]:
    """The token ids, equal ones one object: a request keeps them twice, and a rank has millions."""
    ids, known = tokens.tolist(), {}
    return list(map(known.setdefault, ids, ids))


class Match:
    """What the prefix cache has of a request: blocks by group, and how many tokens."""

    __slots__ = ("blocks", "tokens")

    def __init__(self, blocks: Any, tokens: int) -> None:
        self.blocks, self.tokens = blocks, tokens


class Calls:
    """`manager`: the tree's KVCacheManager of `groups`; `page_size`: tokens a hash stands for; `chunk_tokens`: the most
    that a step gives a request."""

    def __init__(
        self, tree: VllmTree, manager: Any, groups: tuple[Group, ...], page_size: int, chunk_tokens: int
    ) -> None:
        self.tree, self.manager, self.groups, self.page_size = tree, manager, groups, page_size
        self.chunk_tokens = chunk_tokens
        self.pool = manager.block_pool
        self.step = ""
        self._tables = dict(
            zip((group.name for group in groups), manager.coordinator.single_type_managers, strict=True)
        )
        self._hasher = tree.kv_cache_utils.get_request_block_hasher(page_size, page_hash)
        self.windows_moved = 0  # calls in which a window gave pages back
        self.evicted = 0  # keys that left the prefix map at a lend
        self._tell_window_steps()
        self._count_evictions()

    def _tell_window_steps(self) -> None:
        """What left the window is freed inside an allocation: `step` says so meanwhile."""
        coordinator, pool = self.manager.coordinator, self.pool
        remove = coordinator.remove_skipped_blocks

        def removing(*args, **kwargs):
            before, self.step = self.step, "window"
            free = pool.get_num_free_blocks()
            try:
                return remove(*args, **kwargs)
            finally:
                self.step = before
                self.windows_moved += pool.get_num_free_blocks() > free

        coordinator.remove_skipped_blocks = removing

    def _count_evictions(self) -> None:
        """A cached prefix goes when its block is lent for something else: nobody is asked for it."""
        pool, give = self.pool, self.pool.get_new_blocks

        def giving(*args, **kwargs):
            before = len(pool.cached_block_hash_to_block)  # a reset puts another one there
            try:
                return give(*args, **kwargs)
            finally:
                self.evicted += max(0, before - len(pool.cached_block_hash_to_block))

        pool.get_new_blocks = giving

    def request(self, spec: RequestSpec, *, sampling: dict[str, Any] | None = None, **more: Any) -> Any:
        """The tree's own Request, whose hashes are known as far as its tokens are. `sampling`: attributes of its
        sampling parameters besides those that a request is built of; `more`: what the constructor is given besides."""
        kind = self.tree.request.Request
        asked = {
            "max_tokens": spec.output_tokens + 1,
            "extra_args": None,
            "structured_outputs": None,
            "skip_reading_prefix_cache": None,
            "prompt_logprobs": None,
        }
        wanted = {
            "request_id": str(spec.rid),
            "prompt_token_ids": _few_objects(spec.tokens(0, spec.prompt_tokens)),
            "sampling_params": SimpleNamespace(**asked | (sampling or {})),
            "pooling_params": None,
            "eos_token_id": None,
            "arrival_time": 0.0,
            "cache_salt": str(spec.namespace) if spec.namespace else None,
            "block_hasher": self._hasher,
            **more,
        }
        return kind(**accepted(kind, **wanted))

    def match(self, request: Any) -> Match:
        self.step = "match"
        answer = self.manager.get_computed_blocks(request)
        self.step = ""
        if self.tree.features.three_part_match:
            request.shared_prefix_boundary = answer[2]
        return Match(answer[0], answer[1])

    def allocate(
        self,
        request: Any,
        tokens: int,
        *,
        ahead: int = 0,
        match: Match | None = None,
        external: int = 0,
        **more: Any,
    ) -> bool:
        """Slots for `tokens` more, and `ahead` of them for drafts; with a match its blocks are taken. `external`:
        tokens that will be loaded, and published when they are. False: no room."""
        asked: dict[str, Any] = more
        if match is not None and match.tokens:
            asked |= {"num_new_computed_tokens": match.tokens, "new_computed_blocks": match.blocks}
        if ahead:
            asked["num_lookahead_tokens"] = ahead
        if external:
            asked |= {"num_external_computed_tokens": external, "delay_cache_blocks": True}
        self.step = "slots"
        given = self.manager.allocate_slots(request, tokens, **asked)
        self.step = ""
        return given is not None

    def allocate_first(self, request: Any, tokens: int, match: Match, external: int) -> bool:
        """As `allocate`, if the whole of what is known of the request has room too: upstream's default."""
        if self.tree.features.full_sequence_must_fit:
            return self.allocate(request, tokens, match=match, external=external, full_sequence_must_fit=True)
        self.step = "slots"
        fits = self.manager.can_fit_full_sequence(
            request, match.tokens, match.blocks, num_external_computed_tokens=external
        )
        self.step = ""
        return fits and self.allocate(request, tokens, match=match, external=external)

    def slide(self, request: Any) -> None:
        """What left the request's windows is freed, as each allocation begins."""
        self.manager.coordinator.remove_skipped_blocks(request.request_id, request.num_computed_tokens)

    def publish(self, request: Any, tokens: int) -> None:
        """The request's first `tokens` are there: a load has brought them."""
        self.step = "publish"
        self.manager.cache_blocks(request, tokens)
        self.step = ""

    def free(self, request: Any) -> None:
        self.step = "release"
        self.manager.free(request)
        self.step = ""

    def preempt(self, request: Any) -> None:
        """The request loses its blocks, and starts over when it comes again."""
        self.free(request)
        request.num_computed_tokens = 0
        request.num_preemptions += 1
        request.status = self.tree.request.RequestStatus.PREEMPTED

    def table(self, request_id: str, group: str, first: int = 0, end: int | None = None) -> list[int]:
        """Block ids of places [first, end) in order, the null block where there is none; []: it has no blocks."""
        blocks = self._tables[group].req_to_blocks.get(request_id, ())
        return [block.block_id for block in blocks[first:end]]

    def pages_of(self, request_id: str) -> set[int]:
        """Block ids of all tables of a request, without the null block."""
        null = self.pool.null_block.block_id
        return {page for group in self._tables for page in self.table(request_id, group)} - {null}

    def computed_tables(self, request: Any) -> tuple[list[int], ...]:
        """By group, the blocks of a request that ends; newer releases leave out those beyond what is computed."""
        manager, rid = self.manager, request.request_id
        if hasattr(manager, "get_block_ids_for_computed_tokens"):
            return manager.get_block_ids_for_computed_tokens(rid, request.num_computed_tokens)
        return manager.get_block_ids(rid)

    def pages_short(self, request_id: str, upto: int) -> int:
        """Blocks of all groups that slots up to position `upto` need besides those that are there."""
        return sum(self.pages_short_in(request_id, group, upto) for group in self.groups)

    def pages_short_in(self, request_id: str, group: Group, upto: int) -> int:
        """Of these, the blocks of one group."""
        table = self._tables[group.name].req_to_blocks.get(request_id, ())
        return max(0, -(-upto // group.page_size) - len(table))

    def manager_of(self, group: str) -> Any:
        """The tree's manager of one group's tables."""
        return self._tables[group]

    def keeps(self, request_id: str) -> bool:
        """Whether any group has blocks under the request's name."""
        return any(request_id in manager.req_to_blocks for manager in self._tables.values())

    def append(self, request: Any, tokens: np.ndarray) -> None:
        """Output tokens that were sampled, int64[n]."""
        if len(tokens):
            request.append_output_token_ids(tokens.tolist())
