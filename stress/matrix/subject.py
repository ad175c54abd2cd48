"""Whose faults a matrix is of: the reference's, or those that have a form on one real engine.

A base configuration has one arm, named after the project; its target is the subject's.
"""

from __future__ import annotations

from typing import NamedTuple

from stress.fault_catalogue import FaultFacts
from stress.fault_forms import facts_of, faults_of


class Subject(NamedTuple):
    """`target`: as an arm names it; `tree`: the folder that it was resolved to, None for the reference."""

    project: str = "reference"
    target: str = "reference"
    tree: str | None = None

    @property
    def faults(self) -> list[str]:
        """In the order of the table."""
        return faults_of(self.project)

    def facts(self, fault: str) -> FaultFacts:
        """Of one of `faults`."""
        facts = facts_of(fault, self.project)
        if facts is None:
            raise ValueError(
                f"{fault} has no meaning on {self.target}; its faults are {', '.join(self.faults)}"
            )
        return facts


REFERENCE = Subject()
