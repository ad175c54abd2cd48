"""What goes wrong between vLLM's scheduler and the workers of its connector, drawn from the seed.

Each copy, worker and request has draws of its own, so that one share does not move what another hits. A share of 0
draws nothing. What is late or told again is so by 1 to `steps_late` steps' time. From its third load on a request is
left alone: under the policy to compute again it loads anew each time, and would never get on.
"""

from __future__ import annotations

from stress.words import below, chance, split, words

LOADS_THAT_FAIL = 2  # of one request the first ones may
_OF = {"load": "loads", "offload": "stores"}
_SHARES = ("late_loads", "late_stores", "twice_loads", "twice_stores", "lost_loads", "lost_stores")


class Injections:
    """`given`: the [injections] table of a configuration; `seed`: the run's; `step_us`: what a step takes."""

    def __init__(self, given, *, seed: int, rank: int, step_us: int) -> None:
        self._steps_late, self._step_us = given.steps_late, step_us
        names = (*_SHARES, "failed_loads")
        self._shares = {name: round(getattr(given, name) * 1_000_000) for name in names}
        self._bases = {name: split(seed, f"rank{rank}/injections/{name}") for name in names}

    def late_us(self, kind: str, event: int, worker: int) -> int:
        """By how much the worker's copy ends later than it should; `kind`: load or offload."""
        return self._steps_us(f"late_{_OF[kind]}", event, worker)

    def again_us(self, kind: str, event: int, worker: int) -> int:
        """How long after its end the worker tells it a second time; 0: it does not."""
        return self._steps_us(f"twice_{_OF[kind]}", event, worker)

    def is_lost(self, kind: str, event: int, worker: int) -> bool:
        """Whether the worker never tells that its copy has ended."""
        return self._hits(f"lost_{_OF[kind]}", event, worker)

    def failed_from(self, rid: int, loads: int, pages: int) -> int | None:
        """Of the `pages` of a request's load, the place of the first that does not come; None: all do. `loads`: how
        many it has had before."""
        if loads >= LOADS_THAT_FAIL or not self._hits("failed_loads", rid, loads, 0):
            return None
        return int(below(words(self._bases["failed_loads"], rid, loads, 1), pages))

    def told_by_request(self, rid: int, loads: int) -> bool:
        """Whether a failed load is told by its request and not by its pages, where both roads are open."""
        return bool(words(self._bases["failed_loads"], rid, loads, 2) >> 63)

    def _steps_us(self, name: str, event: int, worker: int) -> int:
        if not self._hits(name, event, worker, 0):
            return 0
        steps = 1 + int(below(words(self._bases[name], event, worker, 1), self._steps_late))
        return steps * self._step_us

    def _hits(self, name: str, *counters: int) -> bool:
        share = self._shares[name]
        return bool(share) and bool(chance(words(self._bases[name], *counters), share))
