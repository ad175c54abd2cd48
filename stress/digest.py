"""A rank's decisions folded into one hash: the same on every launcher and device, another one for another seed.

Folded are operations (number, kind, virtual time, rows) and what the engine answered, with the pools' free pages at
each flush. Page ids are not: engines may number their pages differently and still decide alike.
"""

from __future__ import annotations

import sys
from array import array
from hashlib import blake2b

from stress.operation import KIND_CODES, Operation

_BLOCK_WORDS = 8192


class Digest:
    def __init__(self) -> None:
        self._hash = blake2b(digest_size=16)
        self._words = array("q")

    def operation(self, operation: Operation) -> None:
        words = self._words
        answer = operation.answer or ()
        words.extend((operation.number, KIND_CODES[operation.kind], operation.at_us, len(operation.rows)))
        for row in operation.rows:
            words.extend(row)
        words.append(len(answer))
        words.extend(answer)
        if len(words) > _BLOCK_WORDS:
            self._fold()

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
