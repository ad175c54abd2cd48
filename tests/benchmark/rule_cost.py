"""What each rule costs: the events of a run are kept once and shown again to ledgers without one rule each.

Rules that are `proved` share one proof and cost next to nothing by themselves on the short way; what they cost where
events are judged one by one (after a finding, and at level 3) is the long way.
"""

from __future__ import annotations

import time

from stress.check.coverage import Coverage
from stress.check.event import Event
from stress.check.rules import RULES
from stress.check.shadow import Ledger


class Kept:
    """The events that a ledger was shown while the context was open, and the ends of operations between them."""

    def __init__(self) -> None:
        self.log: list[tuple] = []
        self.ledger: Ledger | None = None

    def __enter__(self) -> Kept:
        self._observe, self._settle = Ledger.observe, Ledger.settle
        observe, settle, log, kept = self._observe, self._settle, self.log, self

        def keep_event(ledger: Ledger, event: Event) -> None:
            kept.ledger = ledger
            log.append(event)
            observe(ledger, event)

        def keep_end(ledger: Ledger, operation: int, at_us: int) -> None:
            log.append((operation, at_us))
            settle(ledger, operation, at_us)

        Ledger.observe, Ledger.settle = keep_event, keep_end
        return self

    def __exit__(self, *_) -> None:
        Ledger.observe, Ledger.settle = self._observe, self._settle

    def show_s(self, rules: list[str] | None, observes, short_cuts: bool) -> float:
        """CPU seconds of a ledger of level 2 with these rules that is shown it all."""
        shadow = self.ledger.shadow
        pools, edges = (
            tuple(pool.shape for pool in shadow.pools.values()),
            tuple(e.shape for e in shadow.edges),
        )
        ledger = Ledger(pools, edges, 2, rules, observes, short_cuts=short_cuts)
        ledger.listen(Coverage(edges).observe, Coverage.kinds)
        observe, settle = ledger.observe, ledger.settle
        start_s = time.process_time()
        for item in self.log:
            if len(item) == 2:
                settle(*item)
            else:
                observe(item)
        took_s = time.process_time() - start_s
        if ledger.findings or ledger.crashed:
            raise RuntimeError(f"the run is clean, but: {ledger.findings} {ledger.crashed}")
        return took_s


def rule_shares(kept: Kept, observes, rounds: int) -> dict[str, tuple[float, float]]:
    """Seconds by rule, (short way, long way): all rules less all but this one; "all": all of them."""
    names = list(dict.fromkeys(rule.id for rule in RULES))
    best: dict[tuple[str, bool], float] = {}
    for _ in range(rounds):
        for name in ("all", *names):
            for short_cuts in (True, False):
                rules = None if name == "all" else [other for other in names if other != name]
                took_s = kept.show_s(rules, observes, short_cuts)
                best[name, short_cuts] = min(took_s, best.get((name, short_cuts), took_s))
    shares = {name: tuple(best["all", way] - best[name, way] for way in (True, False)) for name in names}
    return {"all": (best["all", True], best["all", False]), **shares}
