"""The shadow ledger of one rank: shows each event to the rules, then takes it into its own state.

`observe` is called in the order in which the target did things, and `settle` at the end of each operation; or
`observe_all` with the events of some operations, which settles all but the last of them. The first
violation of a rule in a pool is kept whole, with the page's history; later ones are counted. A rule whose
observations the engine can't give is not watched, and says nothing, rather than "0 findings". A check that raises
stops, and its traceback is in `crashed`: the run goes on, its verdict is unknown. Knows no pool by name.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable, Sequence

from stress.check.all_counts import AllCounts
from stress.check.event import ALL_OBSERVATIONS, EdgeShape, Event, EventKind, PoolShape, with_arrays
from stress.check.evidence import Evidence
from stress.check.history import History
from stress.check.plan import Ends, Plan, plans_of
from stress.check.proof import proofs_of
from stress.check.rules import RULES
from stress.check.rules.rule import Rule, Violation
from stress.check.state import LOOKED_AT, Shadow
from stress.check.strays import without_strays
from stress.result import Finding


class Ledger:
    """`level` 0-3 is the price of the checks; `rules` names those to run (None: all); raises ValueError for others.

    findings: violations by rule, in pages where pages are wrong. kept: the first of each (pool, rule). first: the one
    with the lowest faulty operation. on_finding is called with each one kept. short_cuts: events in order are proved
    so in one pass (proof.py); never at level 3.
    """

    def __init__(
        self,
        pools: tuple[PoolShape, ...],
        edges: tuple[EdgeShape, ...],
        level: int = 2,
        rules: list[str] | None = None,
        observes: Iterable[str] = ALL_OBSERVATIONS,
        on_finding: Callable[[Finding], None] | None = None,
        short_cuts: bool = True,
    ):
        unknown = sorted(set(rules or ()) - {rule.id for rule in RULES})
        if unknown:
            known = ", ".join(rule.id for rule in RULES)
            raise ValueError(f"check.rules: no rule {', '.join(unknown)}; choose among {known}")
        self.shadow = Shadow(pools, edges)
        self._pools = list(self.shadow.pools.values())
        self.history = History(self.shadow)
        self._journal = self.history.record
        self._evidence = Evidence(self.history, on_finding)
        self.findings, self.kept = self._evidence.findings, self._evidence.kept
        self.crashed = ""
        self.level = level
        self._lost = False
        self._noticed = self._at_us = self._call = 0
        self._asked = False  # a call may have asked pages back, or got some, since one was last over
        self._stirred = False  # pages have moved, or rules had to judge, since it was settled last
        self._listeners: list[tuple[Callable[[Event], None], frozenset[EventKind]]] = []
        self._proofs = proofs_of(self.shadow, self._consult) if short_cuts and level < 3 else {}
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
        self._ends = Ends(self._rules)
        shadow = None if self._lost else self.shadow
        self._plans = plans_of(self._rules, self._listeners, self._proofs, shadow)

    @property
    def rules_watched(self) -> list[str]:
        """Rules in force, in the order of their numbers."""
        return list(dict.fromkeys(rule.id for rule in self._rules if rule.id in self._wanted))

    @property
    def first(self) -> Finding | None:
        """The finding with the lowest faulty operation."""
        return self._evidence.first

    def listen(self, listener: Callable[[Event], None], kinds: frozenset[EventKind] | None = None) -> None:
        """`listener` is called with each event after the rules (the marks of coverage.py).

        One that names the `kinds` that it wants takes few pages as a list.
        """
        if kinds is None:
            self._listeners.append((lambda event: listener(with_arrays(event)), frozenset(EventKind)))
        else:
            self._listeners.append((listener, kinds))
        self._index()

    def observe(self, event: Event | AllCounts) -> None:
        """One event, in the order in which the target did it. Few pages may be a list."""
        self._take((event,), settles=False)

    def observe_all(self, events: Sequence[Event | AllCounts]) -> None:
        """Those of several operations; each is settled when the next one's first event comes."""
        self._take(events, settles=True)

    def _take(self, events: Sequence[Event | AllCounts], *, settles: bool) -> None:
        journal = self._journal
        for event in events:
            if event.cause.operation != self._noticed or event.call != self._call:
                self._turn_to(event, settles)
            plan = self._plans[event.kind]
            try:
                if type(event) is AllCounts:
                    if not event.in_order(plan, self.shadow, self._drop):
                        self._take(event.events(), settles=False)
                    continue
                prove = plan.few if type(event.pages) is list else plan.many
                if prove is None or not prove(event, plan.others):
                    self._judge(with_arrays(event), plan)
                elif plan.journalled:
                    self._stirred = True
                    if plan.asks:
                        self._asked = True
                    journal(event)
            except Exception:
                self._lose(event)
            for listener in plan.listeners:
                listener(event)

    def _turn_to(self, event: Event | AllCounts, settles: bool) -> None:
        """Another call begins with this event, or another operation."""
        operation = event.cause.operation
        if settles and operation != self._noticed:
            self.settle(self._noticed, self._at_us)
        elif self._asked:
            self._close_call()
        self._call, self._noticed, self._at_us = event.call, operation, event.at_us

    def _consult(self, event: Event, others: list[tuple[Rule, Callable]]) -> None:
        """An event that is proved in order is shown to the rules that the proof does not speak for."""
        shadow, report, looked = self.shadow, self._report, False
        for rule, check in others:
            if not rule.takes_lists:
                if type(event.pages) is list:
                    event = with_arrays(event)
                if not looked and event.peers is None and event.kind in LOOKED_AT:
                    looked = True
                    shadow.pools[event.pool].look(event.pages)
            try:
                check(event, shadow, report)
            except Exception:
                self._drop(rule)

    def _judge(self, event: Event, plan: Plan) -> None:
        """Shows an event to every rule that wants it, then applies it."""
        shadow = self.shadow
        self._stirred = self._stirred or plan.stirs or event.table != ""  # its references are counted then
        self._asked = self._asked or plan.asks
        if plan.journalled:
            self._journal(event)
        if shadow.strays and plan.by_source:
            event = without_strays(event, shadow)
        if plan.moves:
            shadow.doubtful = shadow.pools[event.pool].doubtful = True
        if plan.looked_at and event.peers is None:
            shadow.pools[event.pool].look(event.pages)
        for rule, check in plan.checks:
            try:
                check(event, shadow, self._report)
            except Exception:
                self._drop(rule)
        for rule in plan.closing:
            for pool in shadow.named(event.pool):
                self._run(rule, rule.close, pool, event)
        if plan.apply is not None:
            try:
                plan.apply(event)
            except Exception:
                self._lose(event)

    def _lose(self, event: Event) -> None:
        """The shadow itself has failed. Without its state no rule can judge what follows: all stop."""
        self._lost = True
        self._crash(f"shadow, {event.kind.value} event")
        self._rules = []
        self._index()

    def settle(self, noticed_operation: int, at_us: int) -> None:
        """The operation is over: what must hold between operations is checked now."""
        if self._asked:
            self._close_call()
        self._noticed, self._at_us = noticed_operation, at_us
        if not self._stirred:
            return  # nothing was told, or it was in order and has moved nothing
        self._stirred = False
        shadow, report = self.shadow, self._report
        ends = iter(self._ends.of_operation if shadow.doubtful else self._ends.of_proved_operation)
        while True:
            try:
                for rule in ends:
                    rule.end(None, shadow, report)
                break
            except Exception:
                self._drop(rule)  # those behind it still have their turn
        shadow.end_operation()

    def settle_latest(self) -> None:
        """The operation of the event that came last is over."""
        self.settle(self._noticed, self._at_us)

    def _close_call(self) -> None:
        """The last call of the target is over: outside a group everything that it asked back has come back."""
        self._asked = False
        for pool in self._pools:
            if pool.group_open or not (pool.asking or pool.came):
                continue
            if pool.doubtful or pool.asked_pages or not self._ends.call_is_proved:
                for rule in self._ends.of_call:
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
        if self._proofs:
            self._proofs = {}
            self._index()
        if violation.rule in self._wanted:
            self._evidence.add(violation, self._noticed, self._at_us)
