"""What travels in the pipe between the local launcher and a rank: msgspec JSON, never pickles."""

from __future__ import annotations

import msgspec

from stress.launch.contract import RankOutcome


class StorePort(msgspec.Struct, frozen=True, tag="store_port", tag_field="message"):
    """Where the store of the arm's first rank listens; 0: there is none, go on alone. From it, then to its peers."""

    port: int


class Gone(msgspec.Struct, frozen=True, tag="gone", tag_field="message"):
    """To all ranks of an arm: this one is lost. Whoever waits for it to join goes on alone."""

    index: int


class Refused(msgspec.Struct, frozen=True, tag="refused", tag_field="message"):
    """From a rank: this machine can't run it; the reason ends the whole run."""

    reason: str


class Ended(msgspec.Struct, frozen=True, tag="ended", tag_field="message"):
    """A rank's last message."""

    outcome: RankOutcome


Message = StorePort | Gone | Refused | Ended
_DECODER = msgspec.json.Decoder(Message)


def encode(message: Message) -> bytes:
    return msgspec.json.encode(message)


def decode(message: bytes) -> Message:
    return _DECODER.decode(message)
