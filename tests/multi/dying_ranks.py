"""Ranks of a real run of which rank 1 dies in the middle, as one does that has run out of memory.

Each function is an entry for a launcher: `stress.rank:run_rank`, but for what rank 1 does at its third exchange.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Generator

from stress.engine.reference.engine import ReferenceEngine
from stress.launch import exchange
from stress.rank import run_rank
from stress.result import Emit, RankResult, RankSpec

VICTIM = 1
AT_EXCHANGE = 3
RankGenerator = Generator[bytes, list[bytes], RankResult]


def exits(spec: RankSpec, emit: Emit) -> RankGenerator:
    """Ends at once with 137 and no word, as a container's memory limit does it."""
    return _dying(spec, emit, lambda: os._exit(137))


def lacks_memory(spec: RankSpec, emit: Emit) -> RankGenerator:
    """The rank's own code can't get memory."""
    return _dying(spec, emit, _no_memory)


def target_lacks_memory(spec: RankSpec, emit: Emit) -> RankGenerator:
    """The target can't get memory, in an operation: an error of the target like any other."""

    def from_now_on() -> None:
        ReferenceEngine.extend = lambda engine, rows: _no_memory()

    return _dying(spec, emit, from_now_on)


def _no_memory() -> None:
    raise MemoryError("can't allocate 64 GiB")


def _dying(spec: RankSpec, emit: Emit, die: Callable[[], None]) -> RankGenerator:
    rank = run_rank(spec, emit)
    heard, exchanges = None, 0
    while True:
        try:
            payload = next(rank) if heard is None else rank.send(heard)
        except StopIteration as end:
            return end.value
        exchanges += 1
        if spec.rank == VICTIM and exchanges == AT_EXCHANGE:
            die()
        heard = yield payload


def dies_once_formed(spec: RankSpec, emit: Emit) -> RankGenerator:
    """Rank 1 dies as soon as it has joined; rank 0 has joined too, but hears of the death before it knows.

    Rank 2 then waits in its first exchange for a rank 0 that has gone on alone.
    """
    form = exchange.dist.init_process_group

    def formed(*arguments: object, **options: object) -> None:
        form(*arguments, **options)
        if spec.rank == VICTIM:
            os.kill(os.getpid(), signal.SIGKILL)
        if spec.rank == 0:
            time.sleep(3)

    exchange.dist.init_process_group = formed
    return run_rank(spec, emit)
