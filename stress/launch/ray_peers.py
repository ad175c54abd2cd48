"""Which ranks of a Ray cluster are lost, asked by one of them before their group is formed.

Ray tells an actor's callers at once when it dies, whatever it was doing. So a rank calls those that it waits
for: a busy one lets the call wait, one whose work is over answers, and that of a dead one fails.
"""

from __future__ import annotations

import time
from collections.abc import Collection

import ray
from ray.exceptions import RayError

ASK_S = 0.25  # between two rounds of questions


class PeerWatch:
    """Asks the actors of an arm, in rank order, whether they have ended."""

    def __init__(self, ranks: list[ray.actor.ActorHandle]) -> None:
        self._ranks = ranks
        self._asked: dict[int, ray.ObjectRef] = {}
        self._asked_s = time.monotonic()

    def lost(self, peers: Collection[int]) -> bool:
        """Whether one of `peers`, indices in the arm, has died, or ended without having joined."""
        if time.monotonic() - self._asked_s < ASK_S:
            return False
        self._asked_s = time.monotonic()
        for peer in peers:
            if peer not in self._asked:
                self._asked[peer] = self._ranks[peer].has_ended.remote()
        answered, _ = ray.wait(list(self._asked.values()), num_returns=len(self._asked), timeout=0)
        return any([self._take(peer) for peer, ref in list(self._asked.items()) if ref in answered])

    def _take(self, peer: int) -> bool:
        """The answer of one; one that has not begun yet is asked again."""
        try:
            return ray.get(self._asked.pop(peer))
        except RayError:
            return True
