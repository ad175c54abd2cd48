"""A rank's decisions folded into one hash: the same on every launcher and device, another one for another seed.

Folded are operations (number, kind, virtual time, rows), what the engine answered, and the pools' counts at each
flush. Page ids are not: engines may number their pages differently and still decide alike.
"""

from __future__ import annotations

import sys
from array import array
from hashlib import blake2b

from stress.operation import Kind, Operation

_CODES = {kind: code for code, kind in enumerate(Kind, 1)}
_BLOCK_WORDS = 8192


class Digest:
    def __init__(self) -> None:
        self._hash = blake2b(digest_size=16)
        self._words = array("q")

    def operation(self, operation: Operation, result) -> None:
        """`result`: None, a bool, an int, or a tuple of ints."""
        words = self._words
        words.extend((operation.number, _CODES[operation.kind], operation.at_us, len(operation.rows)))
        for row in operation.rows:
            words.extend(row)
        if result is None:
            words.append(-1)
        elif isinstance(result, tuple):
            words.extend(result)
        else:
            words.append(int(result))
        if len(words) > _BLOCK_WORDS:
            self._fold()

    def counts(self, counts: dict[str, tuple[int, int, int, int]]) -> None:
        for pool in counts.values():
            self._words.extend(pool)

    def _fold(self) -> None:
        block, self._words = self._words, array("q")
        if block.itemsize != 8:
            raise RuntimeError("digest: array('q') is not 8 bytes wide here")
        if sys.byteorder == "big":
            block.byteswap()
        self._hash.update(block.tobytes())

    def hexdigest(self) -> str:
        """32 hex digits of what has been folded so far."""
        self._fold()
        return self._hash.copy().hexdigest()
