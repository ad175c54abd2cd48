"""What each rule costs: the events of a run are kept once and shown again to ledgers without one rule each.

Rules that are `proved` share one proof and cost next to nothing by themselves on the short way; what they cost where
events are judged one by one (after a finding, and at level 3) is the long way.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from stress.check.coverage import Coverage
from stress.check.rules import RULES
from stress.check.shadow import Ledger

_SHOWN_BY = ("observe", "observe_all", "settle")


class Kept:
    """What a ledger was shown while the context was open: events, by themselves or together, and ends of operations."""

    def __init__(self) -> None:
        self.log: list[tuple[str, tuple]] = []
        self.ledger: Ledger | None = None
        self._inside = False  # what a method of the ledger calls itself is not shown again

    def __enter__(self) -> Kept:
        self._methods = {name: getattr(Ledger, name) for name in _SHOWN_BY}
        for name in _SHOWN_BY:
            setattr(Ledger, name, self._keeping(name))
        return self

    def __exit__(self, *_) -> None:
        for name, method in self._methods.items():
            setattr(Ledger, name, method)

    def _keeping(self, name: str) -> Callable:
        method = self._methods[name]

        def keep(ledger: Ledger, *arguments) -> None:
            if self._inside:
                return method(ledger, *arguments)
            self.ledger = ledger
            self.log.append((name, arguments))
            self._inside = True
            try:
                return method(ledger, *arguments)
            finally:
                self._inside = False

        return keep

    def show(self, rules: list[str] | None, observes, short_cuts: bool) -> tuple[Ledger, float]:
        """A ledger of level 2 with these rules that was shown it all, and the CPU seconds that this took."""
        shadow = self.ledger.shadow
        pools, edges = (
            tuple(pool.shape for pool in shadow.pools.values()),
            tuple(e.shape for e in shadow.edges),
        )
        ledger = Ledger(pools, edges, 2, rules, observes, short_cuts=short_cuts)
        ledger.listen(Coverage(edges).observe, Coverage.kinds)
        methods = {name: getattr(ledger, name) for name in _SHOWN_BY}
        start_s = time.process_time()
        for name, arguments in self.log:
            methods[name](*arguments)
        took_s = time.process_time() - start_s
        if ledger.findings or ledger.crashed:
            raise RuntimeError(f"the run is clean, but: {ledger.findings} {ledger.crashed}")
        return ledger, took_s


def rule_shares(kept: Kept, observes, rounds: int) -> dict[str, tuple[float, float]]:
    """Seconds by rule, (short way, long way): all rules less all but this one; "all": all of them."""
    names = list(dict.fromkeys(rule.id for rule in RULES))
    best: dict[tuple[str, bool], float] = {}
    for _ in range(rounds):
        for name in ("all", *names):
            for short_cuts in (True, False):
                rules = None if name == "all" else [other for other in names if other != name]
                _, took_s = kept.show(rules, observes, short_cuts)
                best[name, short_cuts] = min(took_s, best.get((name, short_cuts), took_s))
    shares = {name: tuple(best["all", way] - best[name, way] for way in (True, False)) for name in names}
    return {"all": (best["all", True], best["all", False]), **shares}
