"""What the contract asks of an engine whose ranks agree on nothing and tell each other nothing."""

from __future__ import annotations

from stress.engine.unagreed import Unagreed


class Alone(Unagreed):
    """For an engine without a device to wait for: one rank's decisions are its own."""

    def synchronize(self) -> None: ...

    def exchange(self) -> bytes:
        return b""

    def learn(self, news: list[bytes]) -> None: ...
