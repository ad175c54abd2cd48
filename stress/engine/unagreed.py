"""What an engine answers whose ranks agree on no lookup: without transfer faults their stores can't differ."""

from __future__ import annotations

import numpy as np


class Unagreed:
    """Each rank goes by its own."""

    def join(self, members: int) -> None:
        return None

    def lookup_keys(self, rid: int) -> np.ndarray:
        raise NotImplementedError("lookups are not agreed")

    def landed(self, rids: list[int]) -> bool:
        return True
