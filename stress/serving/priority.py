"""Who is to be served first, for an engine that schedules by priority: drawn for each request from the seed and its id.

Lower goes first, as in vLLM. Under any other policy all are alike.
"""

from __future__ import annotations

from stress.words import below, split, words

LEVELS = 3


class Priorities:
    """`policy`: serving.policy. The priority of a request is 0 to LEVELS - 1, and the same on every rank."""

    def __init__(self, seed: int, policy: str) -> None:
        self._base = split(seed, "serving/priority") if policy == "priority" else None

    def of(self, rid: int) -> int:
        return 0 if self._base is None else int(below(words(self._base, rid), LEVELS))
