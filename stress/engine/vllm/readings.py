"""What may be read of vLLM's KV-cache manager: see the contract and `stress.engine.groups`."""

from __future__ import annotations

from typing import Any

import numpy as np

from stress.engine.alone import Alone
from stress.engine.contract import Room
from stress.engine.groups import Group
from stress.engine.vllm.calls import Calls

NEVER = 1 << 62


class Readings(Alone):
    """`_running`, `_loading`: by request, what has its `request` of the tree. One scheduler decides for all ranks of a
    group, so they agree on nothing."""

    observes = frozenset(
        {
            *("lends", "returns", "groups", "references", "tables", "counts", "drain", "owners"),
            *("writes", "reads", "content"),
        }
    )
    # What an engine with a tree shows, and nothing here can; and what a large pool, or one group, never comes to.
    marks_exempt = frozenset(
        {
            *("linker_loaded_without_swa", "swa_released_out_of_window", "swa_evicted", "full_evicted"),
            *("free_group_with_unmapped", "tombstone_recovered", "node_split", "spec_tail_returned"),
            *("load_back", "offloaded", "load_failed", "offload_failed"),
            "retracted",  # a prompt is let in whole or not at all, so that is for pools of some dozens of pages
        }
    )
    calls: Calls
    groups: tuple[Group, ...]
    offload: Any
    _running: dict[int, Any]
    _loading: dict[int, Any]

    @property
    def step(self) -> str:
        return self.calls.step

    def room(self) -> Room:
        """One pool for all groups: so many tokens could be held in each of them."""
        tokens = self.calls.pool.get_num_free_blocks() // len(self.groups) * self.calls.page_size
        return Room(tokens, NEVER)

    def table(self, rid: int) -> np.ndarray:
        """That of the first group that sees all positions."""
        whole = next(group.name for group in self.groups if group.sees_all)
        return np.array(self.group_table(rid, whole), dtype=np.int64)

    def group_table(self, rid: int, group: str, first: int = 0, end: int | None = None) -> list[int]:
        return self.calls.table(str(rid), group, first, end)

    def pages_short(self, rid: int, upto: int) -> int:
        return self.calls.pages_short(str(rid), upto)

    def committed(self, rid: int) -> int:
        running = self._running.get(rid) or self._loading.get(rid)
        return 0 if running is None else running.request.num_computed_tokens

    def running(self) -> list[int]:
        return list(self._running)

    def counts(self) -> dict[str, tuple[int, int, int, int]]:
        pool = self.calls.pool
        return {"blocks": (len(pool.blocks) - 1, pool.get_num_free_blocks(), 0, 0)}

    def leftover(self) -> tuple[int, int, int, int, int]:
        loads, offloads = (0, 0) if self.offload is None else self.offload.in_flight()
        return 0, 0, loads, offloads, len(self._running) + len(self._loading)

    def kept_of(self, rid: int) -> tuple[int, int, int]:
        return 0, int(rid in self._loading), int(self.calls.keeps(str(rid)))

    def marks(self) -> dict[str, int]:
        calls = self.calls
        seen = {"full_evicted": calls.evicted, "swa_released_out_of_window": calls.windows_moved}
        return seen | ({} if self.offload is None else self.copied())

    def copied(self) -> dict[str, int]:
        """The marks of what the offload has done."""
        return {"load_back": self.offload.loads_done, "offloaded": self.offload.offloads_done}

    def allocators(self) -> Any:
        return self.calls.manager

    def standing(self) -> tuple[int, ...]:
        return (self.calls.pool.get_num_free_blocks(), len(self._running))
