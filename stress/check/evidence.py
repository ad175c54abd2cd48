"""What the rules have reported: counts by rule, and the first violation of each rule in each pool, kept whole."""

from __future__ import annotations

from collections.abc import Callable

from stress.check.history import History
from stress.check.rules.rule import Violation
from stress.result import Finding


class Evidence:
    """findings: violations by rule, in pages where pages are wrong. kept: the first of each (pool, rule). first: the
    one with the lowest faulty operation. on_finding is called with each one kept."""

    def __init__(self, history: History, on_finding: Callable[[Finding], None] | None):
        self.findings: dict[str, int] = {}
        self.kept: list[Finding] = []
        self.first: Finding | None = None
        self.on_finding = on_finding
        self._history = history
        self._seen: set[tuple[str, str]] = set()

    def add(self, violation: Violation, noticed: int, at_us: int) -> None:
        """Counts a violation that became visible in operation `noticed`, and keeps it where it is a first."""
        rule, pool, cause = violation.rule, violation.pool, violation.cause
        self.findings[rule] = self.findings.get(rule, 0) + violation.count
        operation = noticed if cause is None else cause.operation
        leads = self.first is None or _rank(operation, rule) < _rank(self.first.operation, self.first.rule)
        if (pool, rule) in self._seen and not leads:
            return
        finding = Finding(
            rule=rule,
            pool=pool,
            operation=operation,
            noticed=noticed,
            virtual_us=at_us if violation.at_us is None else violation.at_us,
            page=violation.page,
            message=violation.message(),
            history=self._history_of(violation),
        )
        if leads:
            self.first = finding
        if (pool, rule) not in self._seen:
            self._seen.add((pool, rule))
            self.kept.append(finding)
            if self.on_finding is not None:
                self.on_finding(finding)

    def _history_of(self, violation: Violation) -> list[str]:
        if not violation.pool:
            return []  # of no pool, so of no page
        source = violation.source or self._history.reader_of(violation.pool, violation.page)
        if source is None:
            return self._history.lines(violation.pool, violation.page)
        return self._history.lines(*source, violation.pool, violation.page)


def _rank(operation: int, rule: str) -> tuple[int, int]:
    """What leads: the earliest faulty operation; of one operation the rule of the lowest number, nearest the cause."""
    return operation, int(rule[1:])
