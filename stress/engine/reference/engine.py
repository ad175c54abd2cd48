"""The reference engine: the verbs of `stress.engine.contract` over allocator/ and linker/.

Call order and free groups are those of SGLang 0.5.22 and 0.5.23: a request matches and locks, a load-back gives
private slots, slots are allocated after evicting, results are processed inside one free group, window eviction
has a group of its own, an abort has none. What upstream screens off is not screened off here: see
`release_window` and `Memory._free_leaf`. What differs between releases is in `habits`.
"""

from __future__ import annotations

import numpy as np

from linker.agreed_linker import AgreedLinker
from stress.engine.contract import Admission, RequestSpec
from stress.engine.reference.publish import (
    EVICTION_INTERVAL_TOKENS,
    publish,
    release_private,
    release_window,
)
from stress.engine.reference.readings import EngineReadings
from stress.engine.reference.row import Row


class ReferenceEngine(EngineReadings):
    """One rank's KV memory: the verbs. How it is built, and what may be read of it, is in `EngineReadings`."""

    # Requests

    def open(self, spec: RequestSpec) -> None:
        self._specs[spec.rid] = spec

    def close(self, rid: int) -> None:
        del self._specs[rid]

    def admit(self, rid: int, spare: int) -> Admission | None:
        spec, memory = self._specs[rid], self.memory
        if len(self._rows) >= self.max_rows:
            return None
        row = Row(spec, self.keys_of(spec), self.spare_pages)
        keys = row.keys[: self._usable_pages(spec)]
        match = memory.cache.match(keys)
        row.receipt = memory.cache.lock(match.node, rid)
        row.append(match.pages)
        row.committed = row.allocated = row.protected = row.held * self.page_size
        row.swa_from = match.swa_from * self.page_size
        if match.known > row.held:
            row.branch = match.known * self.page_size
        cached, ready_us = row.committed, self.now_us
        if memory.room()[0] < spec.prompt_tokens - cached + spare:
            return self._refuse(row)
        if spec.restorable is not None:
            keys = keys[: spec.restorable // self.page_size]
        pages = self.external.restorable(keys, row.held)
        if pages:
            # Without room for the load its tokens are computed, as upstream falls back.
            ready_us = self.external.load_back(row, pages, self.now_us) or ready_us
        if self.ring is not None:
            self.ring.acquire(row)
        self._rows[rid] = row
        return Admission(cached, row.committed - cached, ready_us)

    def _refuse(self, row: Row) -> None:
        self.memory.cache.unlock(row.receipt)

    # Slots

    def extend(self, rows: list[tuple[int, int]]) -> bool:
        if not self._lengthen([(self._rows[rid], upto) for rid, upto in rows], "prompt"):
            return False
        self.external.start_loads()
        return True

    def reserve(self, rows: list[tuple[int, int]]) -> bool:
        targets = []
        for rid, tokens in rows:
            row = self._rows[rid]
            targets.append((row, self.memory.pages_for(row.committed + tokens) * self.page_size))
        return self._lengthen(targets, "draft reserve")

    def _lengthen(self, targets: list[tuple[Row, int]], step: str) -> bool:
        if not self.memory.lengthen(targets, step):
            return False
        if self.ring is not None:
            for row, _ in targets:
                self.ring.enter(row)
        return True

    def commit(self, rows: list[tuple[int, int]]) -> None:
        for rid, accepted in rows:
            row = self._rows[rid]
            row.committed += accepted
            if row.committed > row.allocated:
                raise ValueError(
                    f"commit: request {rid} has {row.allocated} slots and would commit {row.committed}; reserve first"
                )

    def evict(self, full: int, swa: int) -> None:
        self.memory.evict(full, swa)

    # Result processing

    def results_begin(self) -> None:
        # The step's one synchronize: results are processed when the sampled tokens are on the host.
        self.synchronize()
        self.memory.allocator.free_group_begin()

    def results_end(self) -> None:
        self.memory.allocator.free_group_end()

    def checkpoint(self, rid: int) -> None:
        self._publish(rid, finished=False)

    def _publish(self, rid: int, *, finished: bool) -> None:
        row, external = self._rows[rid], self.external
        row.keys = self.keys_to_publish(row)
        end = self._published = publish(self.memory, row, finished=finished)
        if finished or self.habits.checkpoint_stores:
            external.offload(rid, end, self.now_us)
        if not finished and self.habits.matches_after_insert:
            external.match_again(row)

    def evict_windows(self, rids: list[int]) -> None:
        self.memory.allocator.free_group_begin()
        for rid in rids:
            row = self._rows[rid]
            release_window(self.memory, row, row.committed, EVICTION_INTERVAL_TOKENS)
        self.memory.allocator.free_group_end()

    def finish(self, rid: int) -> None:
        self._publish(rid, finished=True)
        self._leave(rid)

    def abort(self, rid: int) -> None:
        self._leave(rid)

    def retract(self, rid: int) -> None:
        self._leave(rid)

    def _leave(self, rid: int) -> None:
        row = self._rows[rid]
        self.external.cancel_load(row)
        if self.ring is not None:
            self.ring.release(row)
        self._spec_tails += release_private(self.memory, row)
        del self._rows[rid]

    # The linker and the end

    def poll(self) -> int:
        return self.external.poll(self.now_us)

    def loads_due_us(self) -> int:
        return 0  # each begins at its admission, which says when it ends

    def failed_loads(self) -> list[tuple[int, int]]:
        unread = self.external.take_unread()
        if not len(unread):
            return []
        named = [(rid, np.isin(row.pages, unread)) for rid, row in self._rows.items()]
        return [(rid, int(bad.argmax()) * self.page_size) for rid, bad in named if bad.any()]

    def drain(self) -> None:
        self.memory.evict(self.memory.allocator.size_full, 0)

    def synchronize(self) -> None:
        self.memory.wait_for_device()

    def exchange(self) -> bytes:
        return self.external.linker.exchange() if self.external.linker else b""

    def learn(self, news: list[bytes]) -> None:
        for additions in news:
            self.external.linker.learn(additions)

    def pending_us(self) -> int | None:
        return self.external.pending_us(self.now_us)

    # The attention-TP group

    def join(self, members: int) -> AgreedLinker | None:
        linker = self.external.linker
        if linker is not None:
            self.agreed = self.external.linker = self.agreed_linker(linker, members, lambda: self.now_us)
        return self.agreed

    def landed(self, rids: list[int]) -> bool:
        return self.agreed is None or all(self._rows[rid].load_ticket is None for rid in rids)
