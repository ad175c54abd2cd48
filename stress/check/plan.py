"""What the ledger does with events of one kind, looked up once per event."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from stress.check.event import Event, EventKind
from stress.check.history import JOURNALLED
from stress.check.proof import Proof, Proofs
from stress.check.rules.rule import Rule
from stress.check.state import LOOKED_AT, Shadow
from stress.check.strays import BY_SOURCE

# Events that move pages: once one of them had to be judged, what proofs leave out must be looked at.
_MOVES = frozenset({EventKind.LEND, EventKind.RETURN, EventKind.INTENT, EventKind.BIND})
# Events that leave nothing to look at when the operation is over.
_STILL = frozenset(
    {EventKind.HOLD, EventKind.WRITTEN, EventKind.READ, EventKind.LIVE, EventKind.LOCK, EventKind.UNLOCK}
    | {EventKind.KEYS, EventKind.HIT, EventKind.CONTENT, EventKind.ENDED, EventKind.CLOCK, EventKind.REFUSED}
)


@dataclass(slots=True)
class Plan:
    """What is done with the events of one kind: proved by `few` or `many`, with a look at what the `others` say, or
    shown to every rule and applied. `asks`: a call asks pages back or gets some; `stirs`: the rules look at the
    operation's end."""

    few: Proof | None
    many: Proof | None
    others: list[tuple[Rule, Callable]]
    journalled: bool
    asks: bool
    stirs: bool
    listeners: list[Callable[[Event], None]]
    looked_at: bool
    moves: bool
    by_source: bool
    checks: list[tuple[Rule, Callable]]
    closing: list[Rule]
    apply: Callable[[Event], None] | None


class Ends:
    """Which of the rules in force look at the end of a call and of an operation; see `Rule`."""

    def __init__(self, rules: list[Rule]):
        self.of_call = [rule for rule in rules if rule.closes]
        self.call_is_proved = all(rule.proved for rule in self.of_call)
        self.of_operation = [rule for rule in rules if rule.ends]
        self.of_proved_operation = [rule for rule in self.of_operation if not rule.end_is_proved]


def plans_of(
    rules: list[Rule],
    listeners: list[tuple[Callable[[Event], None], frozenset[EventKind]]],
    proofs: dict[EventKind, Proofs],
    shadow: Shadow | None,
) -> dict[EventKind, Plan]:
    """The plans by kind. `listeners`: each with the kinds that it wants. `shadow`: None: it is lost."""
    plans = {}
    for kind in EventKind:
        listening = [listener for listener, kinds in listeners if kind in kinds]
        proof = Proofs() if shadow is None else proofs.get(kind, Proofs())
        plans[kind] = plan_of(
            kind, rules, listening, proof, None if shadow is None else shadow.apply_of(kind)
        )
    return plans


def plan_of(
    kind: EventKind,
    rules: list[Rule],
    listeners: list[Callable[[Event], None]],
    proofs: Proofs,
    apply: Callable[[Event], None] | None,
) -> Plan:
    """The plan for a kind under the rules in force. `proofs`, `apply`: none of a shadow that is lost."""
    checks = [(rule, rule.check) for rule in rules if kind in rule.kinds]
    closing = [rule for rule in rules if rule.closes] if kind is EventKind.GROUP_END else []
    if not all(rule.proved for rule in closing):
        proofs = Proofs()
    return Plan(
        *proofs,
        others=[(rule, check) for rule, check in checks if not (rule.proved or kind in rule.proved_kinds)],
        journalled=kind in JOURNALLED,
        asks=kind in (EventKind.INTENT, EventKind.UNREF, EventKind.RETURN),
        stirs=kind not in _STILL,
        listeners=listeners,
        looked_at=kind in LOOKED_AT,
        moves=kind in _MOVES,
        by_source=kind in BY_SOURCE,
        checks=checks,
        closing=closing,
        apply=apply,
    )
