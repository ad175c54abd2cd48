"""I18: the ranks of an attention-TP group take the same decisions, operation by operation.

At each exchange a rank tells the number of its last operation and a digest of all up to it: what was asked and
answered, and how pools, tree and locks stand. Where two members differ they tell, at the next exchange, what each
operation since they last stood alike has come to; the first that differs is the faulty one. Pages of one request then
have the shards of two different prefixes (sgl-project/sglang#38352, LMCache#1379). Between DP ranks nothing but the
step plan must agree. Level 1; a digest of some 30 words an operation, and a comparison of two words an exchange.
"""

from __future__ import annotations

import numpy as np

from stress.check.event import Cause, Event, EventKind
from stress.check.rules.rule import Report, Rule, Violation
from stress.check.state import Shadow
from stress.operation import KIND_CODES

ROW = 7
_NAMES = {code: kind.value for kind, code in KIND_CODES.items()}


class Alike(Rule):
    id = "I18"
    title = "the ranks of a group decide alike"
    needs = frozenset({"decisions"})
    kinds = frozenset({EventKind.DECISIONS})

    def check(self, event: Event, shadow: Shadow, report: Report) -> None:
        rows = event.pages.reshape(-1, ROW)
        own = _by_number(rows[rows[:, 0] == event.token])
        for rank in np.unique(rows[:, 0]).tolist():
            if rank == event.token:
                continue
            theirs = _by_number(rows[rows[:, 0] == rank])
            number = next((n for n in sorted(own | theirs) if _digest(own, n) != _digest(theirs, n)), None)
            if number is not None:
                report(_parted(event, number, rank, own.get(number), theirs.get(number)))


def _by_number(rows: np.ndarray) -> dict[int, list[int]]:
    return {row[1]: row for row in rows.tolist()}


def _digest(rows: dict[int, list[int]], number: int) -> int | None:
    row = rows.get(number)
    return None if row is None else row[2]


def _parted(
    event: Event, number: int, rank: int, mine: list[int] | None, theirs: list[int] | None
) -> Violation:
    kind, rid = (mine or theirs)[3:5]

    def message() -> str:
        return (
            f"operation {number} is the first that differs: {_described(mine)} on this rank, "
            f"{_described(theirs)} on rank {rank} of its group"
        )

    return Violation("I18", "", -1, 1, message, Cause(number, _NAMES[kind], rid, ""))


def _described(row: list[int] | None) -> str:
    if row is None:
        return "nothing"
    _, _, _, kind, rid, *answer = row
    who = f" of request {rid}" if rid >= 0 else ""
    said = ", ".join(str(word) for word in answer if word >= 0)
    return f"{_NAMES[kind]}{who} (answer {said or 'none'})"
