"""Which operations of a rank are kept, and when they are handed out to be written.

none: nothing. all: every block of BLOCK_OPERATIONS, so a killed rank loses less than one block. ring: the last
RING_OPERATIONS, handed out when a first finding, an assertion, an error or the end comes.
"""

from __future__ import annotations

from collections import deque
from typing import Literal

from stress.operation import Operation
from stress.result import Emit, OperationBlock

BLOCK_OPERATIONS = 512
RING_OPERATIONS = 65_536


class Recorder:
    def __init__(self, mode: Literal["none", "ring", "all"], emit: Emit) -> None:
        self._emit = emit
        self._kept: deque[Operation] = deque(maxlen=RING_OPERATIONS if mode == "ring" else None)
        self._block = BLOCK_OPERATIONS if mode == "all" else 0
        self._off = mode == "none"

    def record(self, operation: Operation) -> None:
        """Keeps one operation, with its answer."""
        if self._off:
            return
        self._kept.append(operation)
        if self._block and len(self._kept) >= self._block:
            self.flush()

    def flush(self) -> None:
        """Hands out what is kept and not handed out yet."""
        if self._kept:
            self._emit(OperationBlock(operations=list(self._kept)))
            self._kept.clear()
