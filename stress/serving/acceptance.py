"""How many tokens a decode step yields: drafts are accepted one after the other until the first rejection.

A step with `draft_tokens` slots yields 1..draft_tokens tokens, `accept_mean` on average: the chance that the next
draft is accepted is the p with 1 + p + p^2 + ... = mean, found by bisection in millionths, so no float takes part.
Draws are counter-based: step k of request r depends on the seed, r and k alone.
"""

from __future__ import annotations

import numpy as np

from stress.words import chance, split, words

MILLION = 1_000_000


class Acceptance:
    """`accept_mean_millionths`: tokens a step on average, in millionths; ignored where nothing is drafted."""

    def __init__(self, seed: int, draft_tokens: int, accept_mean_millionths: int) -> None:
        self._base = split(seed, "serving/acceptance")
        self._drafts = max(0, draft_tokens - 1)  # one slot of a step is the target's own token
        self._per_million = chance_per_draft(self._drafts, accept_mean_millionths)

    def cumulative(self, rid: int, first_step: int, tokens: int) -> np.ndarray:
        """int64[steps]: tokens after 1, 2, ... steps, ending at the first step that reaches `tokens` (cut to it)."""
        if tokens <= 0:
            return np.zeros(0, dtype=np.int64)
        if not self._drafts:
            return np.arange(1, tokens + 1, dtype=np.int64)
        steps = np.arange(first_step, first_step + tokens, dtype=np.int64)
        accepted = np.ones(len(steps), dtype=np.int64)
        going = np.ones(len(steps), dtype=bool)
        for draft in range(self._drafts):
            going &= chance(words(self._base, rid, steps, draft), self._per_million)
            accepted += going
        total = np.cumsum(accepted)
        end = int(np.searchsorted(total, tokens)) + 1
        total = total[:end]
        total[-1] = tokens
        return total


def chance_per_draft(drafts: int, mean_millionths: int) -> int:
    """Millionths p with 1 + p + ... + p**drafts == mean, clipped to [0, 1]."""
    lo, hi = 0, MILLION
    while lo < hi:
        middle = (lo + hi) // 2
        power, total = MILLION, MILLION
        for _ in range(drafts):
            power = power * middle // MILLION
            total += power
        if total < mean_millionths:
            lo = middle + 1
        else:
            hi = middle
    return lo
