"""Where two arms part: the first operation of a rank that differs, or that was answered differently.

Both arms get the same requests, so up to that operation their engines decided alike. A pure function on recorded
operations; a recording that does not begin at operation 1 (a ring that has turned over) can't be compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from typing import Any

from stress.operation import Operation

_ANSWERS = {
    "admit": "cached {0} and loaded {1} tokens",
    "extend": "had room: {0}",
    "reserve": "had room: {0}",
    "poll": "{0} transfers ended",
    "results_end": "{0} full and {1} swa pages free",
    "drain": "{0} full and {1} swa pages free",
}


def first_divergence(base: Sequence[Operation], test: Sequence[Operation]) -> tuple[int, str, str] | None:
    """(operation number, what base did, what test did); None where one is the other's beginning, or either is cut."""
    if not base or not test or base[0].number != 1 or test[0].number != 1:
        return None
    for ours, theirs in zip_longest(base, test):
        if ours is None or theirs is None:
            return None
        if ours != theirs:
            return ours.number, describe(ours), describe(theirs)
    return None


def divergence_of(
    base: str, test: str, recorded: dict[tuple[str, int], Sequence[Operation]], ranks: int
) -> dict[str, Any] | None:
    """The earliest divergence over the ranks, for verdict.json. `recorded`: operations by (arm, rank)."""
    found = []
    for rank in range(ranks):
        parted = first_divergence(recorded.get((base, rank), ()), recorded.get((test, rank), ()))
        if parted is not None:
            found.append((parted[0], rank, parted))
    if not found:
        return None
    number, rank, (_, ours, theirs) = min(found)
    return {"rank": rank, "operation": number, "ranks": len(found), "arms": {base: ours, test: theirs}}


def describe(operation: Operation) -> str:
    """`checkpoint of request 4 at 1.25 s`, with what the engine answered."""
    text = f"{operation.describe()} at {operation.at_us / 1_000_000:g} s"
    if operation.answer is None:
        return f"{text}: raised"
    form = _ANSWERS.get(operation.kind.value)
    if operation.kind.value == "admit" and not operation.answer:
        return f"{text}: refused"
    return f"{text}: {form.format(*operation.answer)}" if form and operation.answer else text
