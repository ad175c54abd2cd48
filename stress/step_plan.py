"""What the ranks of an arm tell each other before each step, as the ranks of DP attention do.

A server under DP attention gathers a few integers of every rank before each forward pass: all agree on the step's
sizes from them, and a rank without a batch takes part as idle. Here each exchange carries such a plan, fixed in width,
at the head of every payload. A rank keeps a digest over all tables that it gathered, so that one which heard something
else is found. Upstream: sglang/srt/managers/scheduler_components/dp_attn.py, MLPSyncBatchInfo.all_gather.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Sequence
from enum import IntEnum
from hashlib import blake2b
from typing import NamedTuple

_INT64S = struct.Struct("<4q")
PLAN_BYTES = _INT64S.size
PLAN_WORDS = PLAN_BYTES // 8
_MISSING = b"\xff" * PLAN_BYTES  # of a rank that is lost; no plan has a mode of -1


class Mode(IntEnum):
    """What a rank's last turn before the exchange was."""

    IDLE = 0  # it had nothing to do since the exchange before
    EXTEND = 1
    DECODE = 2


class StepPlan(NamedTuple):
    """One rank's row of the gathered table: four int64, in this order."""

    mode: int
    extend_tokens: int  # of the turn's prefill batch
    decode_requests: int  # that took a decode step
    reached_us: int  # virtual time, microseconds

    @property
    def has_tokens(self) -> bool:
        return self.extend_tokens > 0 or self.decode_requests > 0

    def to_bytes(self) -> bytes:
        """PLAN_BYTES bytes, little-endian."""
        return _INT64S.pack(*self)


def plan_of(payload: bytes) -> StepPlan | None:
    """The plan at a payload's head; None for the empty payload of a rank that is lost.

    Raises ValueError for a payload that is shorter than a plan.
    """
    if not payload:
        return None
    if len(payload) < PLAN_BYTES:
        raise ValueError(f"a payload of {len(payload)} bytes holds no step plan of {PLAN_BYTES}")
    return StepPlan(*_INT64S.unpack_from(payload))


class GatheredPlans:
    """What a rank remembers of the tables: how many, what it was in them itself, and their digest."""

    def __init__(self) -> None:
        self.exchanges = 0
        self.turns: Counter[Mode] = Counter()  # its own, one an exchange
        self.idle_beside_busy = 0
        self._hash = blake2b(digest_size=16)

    def add(self, own: StepPlan, table: Sequence[StepPlan | None]) -> bool:
        """One gathered table, in rank order. True where this rank was idle while a peer had tokens."""
        self.exchanges += 1
        self.turns[Mode(own.mode)] += 1
        self._hash.update(b"".join(_MISSING if plan is None else plan.to_bytes() for plan in table))
        beside_busy = own.mode == Mode.IDLE and any(plan.has_tokens for plan in table if plan is not None)
        self.idle_beside_busy += beside_busy
        return beside_busy

    def told(self) -> dict[str, int | str]:
        """The fields of result.StepPlans; the digest is of 32 hex digits, over all tables so far."""
        return {
            "exchanges": self.exchanges,
            "idle": self.turns[Mode.IDLE],
            "extend": self.turns[Mode.EXTEND],
            "decode": self.turns[Mode.DECODE],
            "idle_beside_busy": self.idle_beside_busy,
            "digest": self._hash.copy().hexdigest(),
        }
