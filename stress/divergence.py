"""Where two arms part: the first operation of a rank that differs, or that was answered differently, and why.

Both arms get the same requests, so up to that operation their engines decided alike. A pure function on recorded
operations and on the arms' entries in a verdict document. Operations are held together by their number: a ring that
has turned over lacks some, which are counted (`unrecorded`), for the arms may have parted in one of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from stress.divergence_words import describe, why
from stress.operation import Operation
from stress.verdict_rank import place_of


class Parting(NamedTuple):
    """Where one rank's two recordings part.

    kind: "answer": the same request was answered differently. "asked": the arms asked different things. "ended": one
    arm raised in this operation, or its recording ends before it; the other one went on.
    """

    kind: Literal["answer", "asked", "ended"]
    number: int
    at_us: int  # virtual time, the earlier one where the arms' differ
    base: Operation | None  # None: not recorded, or the recording had ended
    test: Operation | None
    equal: int  # operations before it that both recorded, all equal
    last: Operation | None  # the last of them
    ended: Literal[0, 1, None] = None  # the one that ended: base or test

    @property
    def unrecorded(self) -> int:
        """Operations before it that are not in both recordings."""
        return self.number - 1 - self.equal


def first_divergence(base: Sequence[Operation], test: Sequence[Operation]) -> Parting | None:
    """Where the recordings of one rank part; None where all that both hold is equal and both end together."""
    if not base or not test:
        return None
    others = {operation.number: operation for operation in test}
    ends = base[-1], test[-1]
    equal, last = 0, None
    for ours in base:
        theirs = others.get(ours.number)
        if ours.number > ends[1].number:
            break
        if theirs is None:
            continue
        if ours != theirs:
            return _differs(ours, theirs, equal, last)
        equal, last = equal + 1, ours
    return None if ends[0].number == ends[1].number else _ended(base, test, equal, last)


def _differs(ours: Operation, theirs: Operation, equal: int, last: Operation | None) -> Parting:
    at_us = min(ours.at_us, theirs.at_us)
    if ours[:4] != theirs[:4]:
        return Parting("asked", ours.number, at_us, ours, theirs, equal, last)
    if None in (ours.answer, theirs.answer):
        return Parting("ended", ours.number, at_us, ours, theirs, equal, last, int(theirs.answer is None))
    return Parting("answer", ours.number, at_us, ours, theirs, equal, last)


def _ended(
    base: Sequence[Operation], test: Sequence[Operation], equal: int, last: Operation | None
) -> Parting:
    """One recording ends before the other, and what both hold up to there is equal."""
    ended = int(test[-1].number < base[-1].number)
    end = (base, test)[ended][-1]
    # An operation that raised is recorded; that the other arm went on beyond it is known also where its ring lost it.
    number = end.number if end.answer is None and end != last else end.number + 1
    at = [next((each for each in arm if each.number == number), None) for arm in (base, test)]
    return Parting("ended", number, end.at_us, at[0], at[1], equal, last, ended)


def divergence_of(
    base: str,
    test: str,
    recorded: Mapping[str, Mapping[int, Sequence[Operation]]],
    arms: Mapping[str, dict[str, Any]],
) -> dict[str, Any] | None:
    """The divergence that is first in virtual time over the ranks, for verdict.json; None where no rank parts.

    Args:
        recorded: operations by arm and rank.
        arms: the arms' entries of the verdict document, for what explains it.

    Returns:
        {"rank" (base's), "test_rank", "operation", "ranks" (how many part), "kind", "equal_operations",
        "unrecorded_operations", "arms": {arm: what it did}, "why": one to three sentences}
    """
    found = []
    for ours, theirs in _side_by_side(arms[base]["ranks"], arms[test]["ranks"]):
        parted = first_divergence(
            recorded[base].get(ours["rank"], ()), recorded[test].get(theirs["rank"], ())
        )
        if parted is not None:
            found.append((parted.at_us, ours["rank"], theirs["rank"], parted, {base: ours, test: theirs}))
    if not found:
        return None
    _, rank, test_rank, parted, entries = min(found, key=lambda each: each[:2])
    did = {
        arm: describe(operation, entries[arm], parted.ended == place)
        for place, (arm, operation) in enumerate(((base, parted.base), (test, parted.test)))
    }
    watched = any(arms[arm]["rules_watched"] for arm in did)
    return {
        "rank": rank,
        "test_rank": test_rank,
        "operation": parted.number,
        "ranks": len(found),
        "kind": parted.kind,
        "equal_operations": parted.equal,
        "unrecorded_operations": parted.unrecorded,
        "arms": did,
        "why": why(parted, entries, watched),
    }


def _side_by_side(
    base: Sequence[dict[str, Any]], test: Sequence[dict[str, Any]]
) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """The entries of ranks at the same place in their arms: none where the arms have other shares of the requests."""
    if len(base) == len(test):
        others = {place_of(entry): entry for entry in test}
        yield from ((entry, others[place_of(entry)]) for entry in base if place_of(entry) in others)
