"""The vocabulary of a rank: what a scheduler asks of its KV memory.

An operation speaks of request ids and token counts, never of page ids, so the same list can be recorded on one
engine and executed on another. Operations are numbered from 1 by one counter a rank; quiet turns of the serving
loop issue none and take no number. `rows` holds (request id, value) pairs; what the value means stands beside
each kind below. Virtual time is in integer microseconds. This module imports nothing of the project.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple


class Kind(str, Enum):
    """The operations, in the order in which a request meets them."""

    # (rid, spare): match, lock, load back; refused if fewer than `spare` tokens would be left
    ADMIT = "admit"
    EXTEND = "extend"  # (rid, upto): slots for prompt positions up to `upto`; all rows or none
    RESERVE = "reserve"  # (rid, tokens): slots for committed + tokens, rounded up to a page; all rows or none
    COMMIT = "commit"  # (rid, accepted): the forward pass wrote that many more positions
    RESULTS_BEGIN = "results_begin"  # result processing starts: a free group opens
    RESULTS_END = "results_end"  # the free group flushes
    CHECKPOINT = "checkpoint"  # (rid, 0): a running request's whole pages go into the prefix cache
    # (rid, 0): release SWA slots that left the window, in a free group of its own
    EVICT_WINDOWS = "evict_windows"
    FINISH = "finish"  # (rid, 0): insert, release the rest, unlock, give the row back
    ABORT = "abort"  # (rid, 0): release what is not the cache's, unlock, give the row back
    RETRACT = "retract"  # (rid, 0): like abort, and the request will be admitted again
    EVICT = "evict"  # rows = ((0, full tokens), (1, SWA tokens)): make that much room by eviction
    POLL = "poll"  # completions of the external linker take effect
    DRAIN = "drain"  # everything cached is evicted: the pools must be whole again
    # of an engine that schedules by itself (stress.engine.scheduling), which is asked for no slots:
    SUBMIT = "submit"  # (rid, priority): the request waits in the engine's own queue
    SCHEDULE = "schedule"  # the engine chooses what the next forward pass computes, and gives it slots
    UPDATE = "update"  # (rid, tokens): so many were sampled; requests that are at their end go

    __hash__ = str.__hash__  # an enum's own is a Python call, and every operation looks its kind up


KIND_CODES = {kind: code for code, kind in enumerate(Kind, 1)}  # in digests and on the wire
Rows = tuple[tuple[int, int], ...]


class Operation(NamedTuple):
    """One operation. `number` counts from 1 within its rank; `at_us` is virtual time.

    `answer` is what the engine said: tokens that came from the cache and from the linker (admit; empty: refused), 1 or
    0 (extend, reserve), completions (poll), free pages by pool (results_end, drain). Of a schedule: how many requests
    were preempted, these, then request, first position and tokens of each row; of an update: free pages, then the
    requests that have finished. None: it has not answered.
    """

    number: int
    kind: Kind
    at_us: int
    rows: Rows
    answer: tuple[int, ...] | None = None

    def describe(self) -> str:
        """`checkpoint of request 4`, for histories and messages."""
        if len(self.rows) == 1 and self.kind is not Kind.EVICT:
            return f"{self.kind.value} of request {self.rows[0][0]}"
        if self.rows and self.kind is not Kind.EVICT:
            return f"{self.kind.value} of {len(self.rows)} requests"
        return self.kind.value
