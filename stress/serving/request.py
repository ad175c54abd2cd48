"""A request as the serving loop sees it: what was planned, and how far it has come.

Counts are tokens. After its prefill a request has produced one token; that token's KV is written by the next
step, so `committed = prompt + produced - 1` from then on. A retracted request is prefilled again with what it has
produced, and goes on from there.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

CANCEL_NONE, CANCEL_QUEUE, CANCEL_PREFILL, CANCEL_DECODE, CANCEL_RESULTS = range(5)


class PlannedRequest(NamedTuple):
    """One request of the plan. `after` -1: it arrives at start_us; else wait_us after the end of that request."""

    rid: int
    after: int
    wait_us: int
    start_us: int
    prompt_tokens: int
    output_tokens: int
    cancel: int
    cancel_tokens: int


class LiveRequest:
    """Progress of a request between its arrival and its end."""

    __slots__ = (
        "admitted",
        "allocated",
        "cumulative",
        "epoch",
        "plan",
        "position",
        "produced",
        "ready_us",
        "restorable",
        "steps_before",
        "synced",
        "target",
        "turn_zero",
        "waiting_since_us",
    )

    def __init__(self, plan: PlannedRequest) -> None:
        self.plan = plan
        self.produced = 0  # output tokens known
        self.target = plan.prompt_tokens  # positions to prefill
        self.position = 0  # positions prefilled, or found in the cache
        self.ready_us = 0
        self.restorable: int | None = None  # a load of the positions from here on has failed
        self.waiting_since_us = 0  # when it was put into the queue, last
        self.admitted = False
        self.allocated = 0  # slots that the row has
        self.turn_zero = 0  # the rank's decode turn at which decoding (re)started
        self.steps_before = 0  # decode steps taken before the last retraction
        self.cumulative = np.zeros(0, dtype=np.int64)  # tokens after each step since turn_zero
        self.synced = 0  # tokens of `cumulative` that the engine has been told
        self.epoch = 0  # outdates what the event queue holds

    @property
    def rid(self) -> int:
        return self.plan.rid

    @property
    def left_to_prefill(self) -> int:
        return self.target - self.position

    @property
    def known(self) -> int:
        """Tokens of the prompt and of what has been produced."""
        return self.plan.prompt_tokens + self.produced

    @property
    def left_to_produce(self) -> int:
        return self.plan.output_tokens - self.produced

    def tokens_after(self, steps: int) -> int:
        """Tokens since turn_zero after so many steps."""
        return int(self.cumulative[steps - 1]) if steps else 0

    def steps_to(self, tokens: int) -> int:
        """Steps since turn_zero after which at least `tokens` tokens have come."""
        return 0 if tokens <= 0 else int(np.searchsorted(self.cumulative, tokens)) + 1

    def restart(self, prompt_tokens: int) -> None:
        """After a retraction: what has been produced is prefilled with the prompt."""
        self.target = prompt_tokens
        self.position = 0
        self.admitted = False
        self.epoch += 1
