"""What each rule is needed for: rows of the matrix run again with one rule switched off.

A row is lost without a rule when no other rule that the catalogue expects fires at the faulty operation. Only a rule
that fired there itself can lose it: nothing that a rule reports changes what another one sees.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from stress.check.rules import RULE_IDS
from stress.matrix.cell import Cell
from stress.matrix.row import fired_in_time
from stress.matrix.subject import REFERENCE, Subject
from stress.verdict_reasons import sorted_rules


class Trial(NamedTuple):
    """A row without a rule."""

    rule: str
    fault: str
    pool_state: str

    @property
    def overrides(self) -> tuple[str, ...]:
        """What of its row's configuration is otherwise, as --set takes it."""
        others = ", ".join(f'"{rule}"' for rule in RULE_IDS if rule != self.rule)
        return (f"check.rules=[{others}]",)


def trials_of(rows: list[dict[str, Any]]) -> list[Trial]:
    """Each rule with each row at whose faulty operation it fired, by rule."""
    return [
        Trial(rule, row["fault"], row["pool_state"])
        for rule in RULE_IDS
        for row in rows
        if rule in row["in_time"]
    ]


def trial_document(trial: Trial, cell: Cell, subject: Subject = REFERENCE) -> dict[str, Any]:
    """`expected`: the catalogue names the rule for this fault. `in_time`: which rules still fired where it acted."""
    facts = subject.facts(trial.fault)
    in_time = {
        one.detector for one in fired_in_time(trial.fault, cell, facts) if one.detector.startswith("I")
    }
    return {
        "fault": trial.fault,
        "pool_state": trial.pool_state,
        "expected": trial.rule in facts.rules,
        "in_time": sorted_rules(in_time),
        "lost": not in_time & set(facts.rules),
    }


def by_rule(tried: list[tuple[Trial, dict[str, Any]]]) -> list[dict[str, Any]]:
    """A document a rule, in the order of their numbers; `rows`: its trials."""
    return [
        {"rule": rule, "rows": [document for trial, document in tried if trial.rule == rule]}
        for rule in RULE_IDS
    ]
