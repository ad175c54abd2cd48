"""I22: work goes on: nobody waits for long while nothing is under way, and what has ended is cleaned up.

Looked at once an exchange, in virtual time. A request that is older than PATIENCE_US in the queue while nothing runs,
no transfer is on its way and nothing was asked since the last look waits for something that will not come. A transfer
that was due so long ago and has not been taken notice of, while requests wait or run, depends on something that does
not happen: pins and pages stay held. Level 0; two comparisons an exchange. Reported when it begins.
"""

from __future__ import annotations

from stress.check.event import Event, EventKind
from stress.check.rules.rule import Report, Rule, Violation
from stress.check.state import Shadow

PATIENCE_US = 60_000_000


class Progress(Rule):
    id = "I22"
    title = "work goes on"
    needs = frozenset({"clock"})
    level = 0
    kinds = frozenset({EventKind.CLOCK})

    def __init__(self) -> None:
        self._begun: set[str] = set()
        self._operation = -1

    def check(self, event: Event, shadow: Shadow, report: Report) -> None:
        waiting, oldest_us, running, transfers, overdue_us = event.pages.tolist()
        # Between two requests a queue may well be long with nothing under way for a moment.
        idle, self._operation = self._operation == event.cause.operation, event.cause.operation
        stuck = idle and waiting > 0 and oldest_us > PATIENCE_US and not running and not transfers
        self._told(
            "wait",
            stuck,
            event,
            report,
            f"{waiting} requests wait, one for {_seconds(oldest_us)}, and nothing is under way",
        )
        late = overdue_us > PATIENCE_US and (waiting > 0 or running > 0)
        self._told(
            "transfer",
            late,
            event,
            report,
            f"a transfer that was due {_seconds(overdue_us)} ago has not been taken notice of",
        )

    def _told(self, what: str, wrong: bool, event: Event, report: Report, text: str) -> None:
        if not wrong:
            self._begun.discard(what)
        elif what not in self._begun:
            self._begun.add(what)
            report(Violation("I22", event.pool, -1, 1, lambda: text))


def _seconds(us: int) -> str:
    return f"{us / 1_000_000:.1f} s"
