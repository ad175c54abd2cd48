"""Ballast: requests that hold a share of the pages from the first operation to the last, and do nothing else.

On an idle pool a bogus return shows in the counts at once; on a loaded one it hides behind what is on loan. A loaded
pool is one whose pages are mostly lent to others, so others are made: one request that keeps its whole prompt in both
pools, and one whose prompt has slid out of the window, which holds FULL pages alone. They are never in the cache and
never in the plan's counts.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from stress.engine.contract import Engine, RequestSpec
from stress.words import split, words

ROWS = 2  # of an engine's rows that ballast takes
_KEYS = split(0, "ballast/keys")
_ONE = np.uint64(1)


class Ballast:
    """`share` of the pages of each pool (0 to 1); 0: none. `first_rid`: an id that no request of the plan has.

    `tokens_of(keys, lo, hi)`: token ids of positions [lo, hi) of a request with these page keys.
    """

    def __init__(
        self,
        engine: Engine,
        share: float,
        first_rid: int,
        tokens_of: Callable[[np.ndarray, int, int], np.ndarray],
    ) -> None:
        self._engine = engine
        self._tokens_of = tokens_of
        self._parts = round(share * 1000)
        self._first_rid = first_rid
        self._held: list[int] = []

    def load(self) -> None:
        """Takes the pages. Raises ValueError where the pools do not give them."""
        if not self._parts:
            return
        room = self._engine.room()
        page_size = self._engine.page_size
        wide = min(room) // page_size * self._parts // 1000
        self._hold(wide)
        left = room.full // page_size * self._parts // 1000 - wide
        if left > 0:
            self._hold(left)

    def release(self) -> None:
        """Gives everything back."""
        for rid in self._held:
            self._engine.abort(rid)
            self._engine.close(rid)
        self._held = []

    def _hold(self, pages: int) -> None:
        """One request of `pages` pages, in chunks that fit: each of several slides out of the window, the last too."""
        engine, page_size = self._engine, self._engine.page_size
        rid = self._first_rid + len(self._held)
        keys = ((words(_KEYS, rid, np.arange(pages + 1)) >> _ONE) | _ONE).astype(np.int64)
        engine.open(
            RequestSpec(
                rid=rid,
                namespace=-1,
                prompt_tokens=pages * page_size + 1,
                output_tokens=1,
                keys=keys,
                tokens=lambda lo, hi: self._tokens_of(keys, lo, hi),
            )
        )
        if engine.admit(rid, 0) is None:
            raise ValueError(f"ballast: no room for {pages} pages; lower workload.ballast")
        self._held.append(rid)
        start = 0
        while start < pages:
            end = min(pages, start + max(1, min(engine.room()) // page_size))
            if not engine.extend([(rid, end * page_size)]):
                raise ValueError(f"ballast: no room for page {end} of {pages}; lower workload.ballast")
            engine.commit([(rid, (end - start) * page_size)])
            if end - start < pages:
                engine.evict_windows([rid])
            start = end
