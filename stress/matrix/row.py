"""A row of the matrix: one fault in one pool state, what fired, and what its clean twin did.

The row holds when a rule that the catalogue expects fired at the faulty operation, and the twin came to the fault's
trigger without a finding. The faulty operation is the one at which the fault first acted on the finding's rank. A rule
that can only look at a boundary, in a sweep, at quiesce or by a deadline counts as in time at its first look.
"""

from __future__ import annotations

from typing import Any

from stress.fault_catalogue import FaultFacts
from stress.matrix.cell import Cell, Fired, parted_from
from stress.matrix.subject import REFERENCE, Subject
from stress.verdict_reasons import sorted_rules


def make_row(
    fault: str, pool_state: str, cell: Cell, twin: Cell, subject: Subject = REFERENCE
) -> dict[str, Any]:
    """The row's document."""
    facts = subject.facts(fault)
    fired = list(cell.fired)
    digest = parted_from(twin, cell)
    if digest is not None:
        fired.append(digest)
    acted = cell.reached.get(fault, {})
    expected = [one for one in fired if one.detector in facts.rules]
    in_time = fired_in_time(fault, cell, facts)
    holding = [one for one in expected if one in in_time]
    rules = [one for one in fired if one.detector.startswith("I")]
    first = min(rules, key=lambda one: (one.operation, one.noticed, int(one.detector[1:])), default=None)
    found = min(holding or expected, key=lambda one: one.noticed, default=None)
    return {
        "fault": fault,
        "config": facts.config,
        "pool_state": pool_state,
        "expected_rules": list(facts.rules),
        "fired": _earliest(fired),
        "first": first.detector if first else None,
        "acted_at": min(acted.values(), default=None),
        "at_faulty_operation": bool(holding),
        "in_time": sorted_rules({one.detector for one in in_time if one.detector.startswith("I")}),
        "upstream_assert": any(one.detector == "assert" for one in fired),
        "clean_twin": {
            "findings": twin.findings,
            "failed": twin.failed,
            "trigger_reached": fault in twin.reached,
        },
        "operations_to_detection": found.noticed if found else None,
        "holds": bool(holding) and not twin.failed and fault in twin.reached,
    }


def fired_in_time(fault: str, cell: Cell, facts: FaultFacts | None = None) -> list[Fired]:
    """What fired at the operation at which the fault first acted on its rank, or later if it can't before. `facts`:
    the fault's on its engine; None: on the reference."""
    late = (facts or REFERENCE.facts(fault)).late
    acted = cell.reached.get(fault, {})
    return [one for one in cell.fired if _in_time(one, acted.get(one.rank), one.detector in late)]


def _in_time(one: Fired, acted_at: int | None, late: bool) -> bool:
    if acted_at is None:
        return False
    if late:
        return acted_at <= one.noticed
    return acted_at in (one.operation, one.noticed)


def _earliest(fired: list[Fired]) -> list[dict[str, Any]]:
    """By detector, where it fired first over all ranks."""
    first: dict[str, Fired] = {}
    for one in fired:
        known = first.get(one.detector)
        if known is None or (one.operation, one.rank) < (known.operation, known.rank):
            first[one.detector] = one
    order = sorted(first.values(), key=lambda one: (one.operation, one.detector))
    return [{"detector": one.detector, "operation": one.operation} for one in order]
