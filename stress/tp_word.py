"""What the members of an attention-TP group tell each other at an exchange, as one MessagePack array.

It travels in a rank's payload behind the step plan, with its length in front, and only where groups have more than one
member. A logical collective (a server would run each as one of its own) is a row of it; all ride on the one exchange,
so one that a rank leaves out is seen and hangs nobody.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

import msgspec
import numpy as np

_LENGTH = struct.Struct("<I")


class Collective(NamedTuple):
    """A logical collective that a rank takes part in: over ranks [first, first + count), `size` words of each."""

    first: int
    count: int
    name: str
    size: int


class Lookup(NamedTuple):
    """What a member's store holds of a request: of its first `pages` pages, a bit each, stored and with SWA."""

    rid: int
    pages: int
    full: bytes
    swa: bytes

    def masks(self) -> tuple[np.ndarray, np.ndarray]:
        """bool[pages] stored, bool[pages] with SWA."""
        return _unpacked(self.full, self.pages), _unpacked(self.swa, self.pages)


class Decision(NamedTuple):
    """An operation as one member ran it. `digest`: of it and all before. `answer`: its first two numbers, -1: none."""

    number: int
    digest: int
    kind: int
    rid: int
    answer: int
    answer_2: int


class TPWord(msgspec.Struct, array_like=True, frozen=True):
    """`ended`: its work ended before its requests did. `number`, `digest`: of its last operation."""

    ended: bool
    number: int
    digest: int
    collectives: list[Collective]
    lookups: list[Lookup]
    transfers: list[int]
    decisions: list[Decision]


_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(TPWord)


def lookup_word(rid: int, full: np.ndarray, swa: np.ndarray) -> Lookup:
    """`full`, `swa`: bool[pages]."""
    return Lookup(rid, len(full), np.packbits(full).tobytes(), np.packbits(swa).tobytes())


def pack_word(word: TPWord) -> bytes:
    body = _ENCODER.encode(word)
    return _LENGTH.pack(len(body)) + body


def split_word(payload: bytes, at: int) -> tuple[TPWord, bytes]:
    """The word at `at` of a payload, and what follows it. Raises ValueError for a payload that is cut."""
    if len(payload) < at + _LENGTH.size:
        raise ValueError(f"a payload of {len(payload)} bytes holds no word of an attention-TP group at {at}")
    (length,) = _LENGTH.unpack_from(payload, at)
    start = at + _LENGTH.size
    body = payload[start : start + length]
    if len(body) < length:
        raise ValueError(f"a payload of {len(payload)} bytes ends inside the word of {length} bytes at {at}")
    return _DECODER.decode(body), payload[start + length :]


def _unpacked(bits: bytes, count: int) -> np.ndarray:
    return np.unpackbits(np.frombuffer(bits, dtype=np.uint8), count=count).astype(bool)
