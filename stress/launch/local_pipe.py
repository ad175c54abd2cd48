"""What travels in the pipe between the local launcher and a rank: msgspec JSON, never pickles."""

from __future__ import annotations

import msgspec

from stress.launch.contract import RankOutcome


class StorePort(msgspec.Struct, frozen=True, tag="store_port", tag_field="message"):
    """Where rank 0's store listens; 0: there is none, go on alone. From rank 0, then to all others."""

    port: int


class Ended(msgspec.Struct, frozen=True, tag="ended", tag_field="message"):
    """A rank's last message."""

    outcome: RankOutcome


_DECODER = msgspec.json.Decoder(StorePort | Ended)


def encode(message: StorePort | Ended) -> bytes:
    return msgspec.json.encode(message)


def decode(message: bytes) -> StorePort | Ended:
    return _DECODER.decode(message)
