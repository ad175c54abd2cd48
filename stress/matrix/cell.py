"""One run of the matrix: a base configuration with a fault, or its clean twin, and which detector fired when.

The ranks run interleaved in this process, as the inline launcher does it, with no files; all their operations are
kept. Detectors beside the rules: `assert` and `error` are the target's own, `drain` is what an idle check in
production would see (free pages after a drain against those of the start), `digest` the first decision that the clean
twin took otherwise.
"""

from __future__ import annotations

from typing import NamedTuple

from stress.config import Config
from stress.divergence import first_divergence
from stress.matrix.drive import drive
from stress.operation import Kind, Operation
from stress.result import OperationBlock, RankResult


class Fired(NamedTuple):
    """A detector and where: `operation` is the faulty one, `noticed` the one at whose end it became visible."""

    detector: str
    operation: int
    noticed: int
    rank: int


class Cell(NamedTuple):
    """What a run showed. `reached`: fault -> rank -> operation at which its trigger was first present."""

    fired: list[Fired]
    reached: dict[str, dict[int, int]]
    findings: int
    failed: bool  # an assert, an error or a finding
    statuses: list[str]
    marks: dict[str, int]
    issued: int  # operations, over all ranks
    operations: dict[int, list[Operation]]  # those that were recorded, by rank
    marks_exempt: frozenset[str] = frozenset()  # that the engine can't show


def run_cell(config: Config, arm: str, tree: str | None = None) -> Cell:
    """Runs all ranks of one arm to their end. `tree`: the folder of its real engine."""
    recorded: dict[int, list[Operation]] = {rank: [] for rank in range(config.layout.ranks)}
    results = drive(config, arm, lambda rank: _keep_operations(recorded[rank]), tree)
    fired = [one for result in results for one in _fired(result, recorded[result.rank])]
    reached: dict[str, dict[int, int]] = {}
    marks: dict[str, int] = {}
    for result in results:
        for fault, operation in result.faults_reached.items():
            reached.setdefault(fault, {})[result.rank] = operation
        for mark, count in result.marks.items():
            marks[mark] = marks.get(mark, 0) + count
    findings = sum(sum(result.findings.values()) for result in results)
    return Cell(
        fired=sorted(fired, key=lambda one: (one.noticed, one.rank, one.detector)),
        reached=reached,
        findings=findings,
        failed=bool(findings or any(result.asserts or result.errors for result in results)),
        statuses=[result.status for result in results],
        marks=marks,
        issued=sum(result.operations for result in results),
        operations=recorded,
        marks_exempt=frozenset(mark for result in results for mark in result.marks_exempt),
    )


def parted_from(twin: Cell, cell: Cell) -> Fired | None:
    """The first operation that the clean twin decided otherwise, as the `digest` detector."""
    parted = []
    for rank, operations in cell.operations.items():
        found = first_divergence(twin.operations[rank], operations)
        if found is not None:
            parted.append(Fired("digest", found.number, found.number, rank))
    return min(parted, key=lambda one: (one.operation, one.rank), default=None)


def _keep_operations(kept: list[Operation]):
    def emit(line) -> None:
        if isinstance(line, OperationBlock):
            kept.extend(line.operations)

    return emit


def _fired(result: RankResult, operations: list[Operation]) -> list[Fired]:
    fired: dict[str, Fired] = {}
    for finding in result.kept:
        known = fired.get(finding.rule)
        if known is None or finding.operation < known.operation:
            fired[finding.rule] = Fired(finding.rule, finding.operation, finding.noticed, result.rank)
    if result.first_assert is not None:
        operation = result.first_assert.operation
        fired["assert"] = Fired("assert", operation, operation, result.rank)
    if result.first_error is not None:
        operation = result.first_error.operation
        fired["error"] = Fired("error", operation, operation, result.rank)
    last = operations[-1] if operations else None
    if (
        last is not None
        and last.kind is Kind.DRAIN
        and last.answer not in (None, tuple(result.free_at_start))
    ):
        fired["drain"] = Fired("drain", last.number, last.number, result.rank)
    return list(fired.values())
