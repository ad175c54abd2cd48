"""The shadow ledger of one rank: shows each event to the rules, then takes it into its own state.

`observe` is called in the order in which the target did things; `settle` at the end of each operation. The first
violation of a rule in a pool is kept whole, with the page's history; later ones are counted. A rule whose
observations the engine can't give is not watched, and says nothing, rather than "0 findings". A check that raises
stops, and its traceback is in `crashed`: the run goes on, its verdict is unknown. Knows no pool by name.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable
from typing import NamedTuple

from stress.check.event import Cause, EdgeShape, Event, EventKind, PoolShape
from stress.check.history import JOURNALLED, History
from stress.check.rules import RULES
from stress.check.rules.rule import Rule, Violation
from stress.check.state import LOOKED_AT, Shadow
from stress.result import Finding


class _Plan(NamedTuple):
    """What is done with the events of one kind."""

    journalled: bool
    looked_at: bool
    checks: list[tuple[Rule, Callable]]
    closing: list[Rule]
    apply: Callable[[Event], None] | None


# What an engine may let be watched, and `offsets`, which the probe alone decides: samples of slots inside a page.
ALL_OBSERVATIONS = frozenset(
    {
        *("lends", "returns", "mapping", "offsets", "groups", "tables", "cache", "counts", "drain", "owners"),
        *("reads", "writes", "live", "locks", "transfers", "keys", "content"),
    }
)


class Ledger:
    """`level` 0-3 is the price of the checks; `rules` names those to run (None: all); raises ValueError for others.

    findings: violations by rule, in pages where pages are wrong. kept: the first of each (pool, rule). first: the one
    with the lowest faulty operation. on_finding is called with each one kept.
    """

    def __init__(
        self,
        pools: tuple[PoolShape, ...],
        edges: tuple[EdgeShape, ...],
        level: int = 2,
        rules: list[str] | None = None,
        observes: Iterable[str] = ALL_OBSERVATIONS,
        on_finding: Callable[[Finding], None] | None = None,
    ):
        unknown = sorted(set(rules or ()) - {rule.id for rule in RULES})
        if unknown:
            known = ", ".join(rule.id for rule in RULES)
            raise ValueError(f"check.rules: no rule {', '.join(unknown)}; choose among {known}")
        self.shadow = Shadow(pools, edges)
        self.history = History(self.shadow)
        self.findings: dict[str, int] = {}
        self.kept: list[Finding] = []
        self.first: Finding | None = None
        self.crashed = ""
        self.on_finding = on_finding
        self.level = level
        self.events = 0
        self._lost = False
        self._noticed = 0
        self._at_us = 0
        self._call = 0
        self._seen: set[tuple[str, str]] = set()
        self._listeners: list[Callable[[Event], None]] = []
        self._wanted = {rule.id for rule in RULES} if rules is None else set(rules)
        self._rules = [r() for r in RULES if r.level <= level and self._wanted & {r.id, *r.also}]
        self.limit_to(observes)

    def limit_to(self, observes: Iterable[str]) -> None:
        """Drops the rules that need an observation which is not among `observes`.

        Where no edge leads from one pool to another there is no mapping to watch, whatever the engine says.
        """
        seen = frozenset(observes) - (frozenset() if self.shadow.edges else {"mapping"})
        self._rules = [rule for rule in self._rules if rule.needs <= seen]
        self._index()

    def _index(self) -> None:
        """What is to be done with an event of each kind, looked up once per event."""
        self._at_close = [rule for rule in self._rules if rule.closes]
        self._at_end = [rule for rule in self._rules if rule.ends]
        self._plans = {
            kind: _Plan(
                kind in JOURNALLED,
                kind in LOOKED_AT,
                [(rule, rule.check) for rule in self._rules if kind in rule.kinds],
                self._at_close if kind is EventKind.GROUP_END else [],
                None if self._lost else self.shadow.apply_of(kind),
            )
            for kind in EventKind
        }

    @property
    def rules_watched(self) -> list[str]:
        """Rules in force, in the order of their numbers."""
        return list(dict.fromkeys(rule.id for rule in self._rules if rule.id in self._wanted))

    @property
    def operation(self) -> int:
        """The operation of the last event, or the one that was settled last."""
        return self._noticed

    def listen(self, listener: Callable[[Event], None]) -> None:
        """`listener` is called with each event after the rules (the marks of coverage.py)."""
        self._listeners.append(listener)

    def observe(self, event: Event) -> None:
        """One event, in the order in which the target did it."""
        shadow, operation = self.shadow, event.cause.operation
        if event.call != self._call or operation != self._noticed:
            self._close_call()
            self._call = event.call
        self.events += 1
        self._noticed, self._at_us = operation, event.at_us
        plan = self._plans[event.kind]
        if plan.journalled:
            self.history.record(event)
        if plan.looked_at and event.peers is None:
            shadow.pools[event.pool].look(event.pages)
        for rule, check in plan.checks:
            try:
                check(event, shadow, self._report)
            except Exception:
                self._drop(rule)
        for rule in plan.closing:
            self._run(rule, rule.close, shadow.pools[event.pool], event)
        if plan.apply is not None:
            try:
                plan.apply(event)
            except Exception:
                self._lose(event)
        for listener in self._listeners:
            listener(event)

    def _lose(self, event: Event) -> None:
        """The shadow itself has failed. Without its state no rule can judge what follows: all stop."""
        self._lost = True
        self._crash(f"shadow, {event.kind.value} event")
        self.limit_to(())

    def settle(self, noticed_operation: int, at_us: int) -> None:
        """The operation is over: what must hold between operations is checked now."""
        self._close_call()
        self._noticed, self._at_us = noticed_operation, at_us
        for rule in self._at_end:
            self._run(rule, rule.end, None)
        self.shadow.end_operation()

    def _close_call(self) -> None:
        """The last call of the target is over: outside a group everything that it asked back has come back."""
        for pool in self.shadow.pools.values():
            if pool.group_open:
                continue
            if pool.intents or pool.returned:
                for rule in self._at_close:
                    self._run(rule, rule.close, pool, None)
                pool.close()

    def _run(self, rule: Rule, check: Callable, *arguments) -> None:
        try:
            check(*arguments, self.shadow, self._report)
        except Exception:
            self._drop(rule)

    def _drop(self, rule: Rule) -> None:
        """A rule that raised says nothing more. New lists: the old ones are being walked."""
        self._crash(f"rule {rule.id}")
        self._rules = [r for r in self._rules if r is not rule]
        self._index()

    def _crash(self, where: str) -> None:
        if not self.crashed:
            self.crashed = f"{where} at operation {self._noticed}:\n{traceback.format_exc()}"

    def _report(self, violation: Violation) -> None:
        rule, pool = violation.rule, violation.pool
        if rule not in self._wanted:
            return
        self.findings[rule] = self.findings.get(rule, 0) + violation.count
        cause: Cause | None = violation.cause
        operation = self._noticed if cause is None else cause.operation
        leads = self.first is None or _rank(operation, rule) < _rank(self.first.operation, self.first.rule)
        if (pool, rule) in self._seen and not leads:
            return
        finding = Finding(
            rule=rule,
            pool=pool,
            operation=operation,
            noticed=self._noticed,
            virtual_us=self._at_us if violation.at_us is None else violation.at_us,
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
        source = violation.source or self.history.reader_of(violation.pool, violation.page)
        if source is None:
            return self.history.lines(violation.pool, violation.page)
        return self.history.lines(*source, violation.pool, violation.page)


def _rank(operation: int, rule: str) -> tuple[int, int]:
    """What leads: the earliest faulty operation; of one operation the rule of the lowest number, nearest the cause."""
    return operation, int(rule[1:])
