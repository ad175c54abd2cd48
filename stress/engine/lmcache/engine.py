"""LMCache's paged allocator under the verbs of `stress.engine.contract`, as far as a pool alone has them.

Reserve, close and view: a request's pages are its own from its first slot to its end. There is no prefix cache, so an
admission hits nothing and a checkpoint publishes nothing; no window, so none is evicted; no linker. What does not get
its pages gives back what others of the call got: a row is asked for at a time, and the allocator's own answer counts.
"""

from __future__ import annotations

from stress.engine.contract import Admission, RequestSpec
from stress.engine.lmcache.pool import Page
from stress.engine.lmcache.readings import Holder, Readings


class LMCacheEngine(Readings):
    """The verbs."""

    # Requests

    def open(self, spec: RequestSpec) -> None:
        self._specs[spec.rid] = spec

    def close(self, rid: int) -> None:
        del self._specs[rid]

    def admit(self, rid: int, spare: int) -> Admission | None:
        """If its whole prompt has room, and `spare` tokens besides."""
        spec = self._specs[rid]
        needed = -(-spec.prompt_tokens // self.page_size) * self.page_size + spare
        if len(self._holders) >= self.max_rows or needed > self.room().full:
            return None
        self._holders[rid] = Holder(spec)
        return Admission(0, 0, self.now_us)

    # Slots

    def extend(self, rows: list[tuple[int, int]]) -> bool:
        return self._lengthen(rows)

    def reserve(self, rows: list[tuple[int, int]]) -> bool:
        return self._lengthen([(rid, self._holders[rid].committed + tokens) for rid, tokens in rows])

    def _lengthen(self, rows: list[tuple[int, int]]) -> bool:
        """Whole pages up to these positions, for all rows or none."""
        gained: list[tuple[int, list[Page]]] = []
        for rid, upto in rows:
            short = self.pages_short(rid, upto)
            if not short:
                continue
            self.asking = rid
            pages = self.pool.lend(short)
            if pages is None:
                self._take_back(gained)
                return False
            self._holders[rid].pages += pages
            gained.append((rid, pages))
        self.asking = -1
        return True

    def _take_back(self, gained: list[tuple[int, list[Page]]]) -> None:
        for rid, pages in gained:
            self.asking = rid
            holder = self._holders[rid]
            del holder.pages[len(holder.pages) - len(pages) :]
            self.pool.give_up(pages)
        self.asking = -1

    def commit(self, rows: list[tuple[int, int]]) -> None:
        for rid, accepted in rows:
            holder = self._holders[rid]
            if self.pages_short(rid, holder.committed + accepted):
                raise ValueError(
                    f"commit: request {rid} has no slots for {holder.committed + accepted} positions; reserve first"
                )
            holder.committed += accepted

    def evict(self, full: int, swa: int) -> None:
        """Nothing is cached."""

    # Results

    def results_begin(self) -> None: ...

    def results_end(self) -> None: ...

    def checkpoint(self, rid: int) -> None:
        """Nothing is published."""

    def evict_windows(self, rids: list[int]) -> None:
        """There is no window."""

    def finish(self, rid: int) -> None:
        self._leave(rid)

    def abort(self, rid: int) -> None:
        self._leave(rid)

    def retract(self, rid: int) -> None:
        self._leave(rid)

    def _leave(self, rid: int) -> None:
        holder = self._holders.pop(rid)
        self._spec_tails += len(holder.pages) > -(-holder.committed // self.page_size)
        self.asking = rid
        self._give_up(holder.pages)
        self.asking = -1

    def _give_up(self, pages: list[Page]) -> None:
        """The pages of a request that has ended."""
        self.pool.give_up(pages)

    def poll(self) -> int:
        return 0

    def drain(self) -> None:
        """Nothing is cached: what is on loan now has a holder that forgot it."""
