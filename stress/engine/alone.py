"""What the contract asks of an engine whose ranks agree on nothing and tell each other nothing."""

from __future__ import annotations

import numpy as np


class Alone:
    """For an engine without a device to wait for: one rank's decisions are its own."""

    def synchronize(self) -> None: ...

    def exchange(self) -> bytes:
        return b""

    def learn(self, news: list[bytes]) -> None: ...

    def join(self, members: int) -> None:
        return None

    def lookup_keys(self, rid: int) -> np.ndarray:
        raise NotImplementedError("lookups are not agreed")

    def landed(self, rids: list[int]) -> bool:
        return True
