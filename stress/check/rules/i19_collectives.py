"""I19: every rank of a collective takes part in it: one sequence of (group, collective, size) on all its ranks.

A rank that leaves a collective out, because its own queue is empty (sgl-project/sglang#27489), or runs it over a
group of which some ranks are idle and don't come (sgl-project/sglang#7158), leaves the others waiting until a
watchdog ends them. Here a collective has until the end of the exchange that it belongs to; who has not taken part by
then never will. Level 1; a look-up of the exchange's rows among those that were found right before, some twenty
words.
"""

from __future__ import annotations

from stress.check.event import Event, EventKind
from stress.check.rules.rule import Report, Rule, Violation
from stress.check.state import Shadow

ROW = 5
NAMES = ("step plan", "lookups", "transfers")
RIGHT_MAX = 4096
Row = tuple[int, int]  # name, size


class Collectives(Rule):
    id = "I19"
    title = "all ranks of a collective take part in it"
    needs = frozenset({"collectives"})
    kinds = frozenset({EventKind.COLLECTIVES})

    def __init__(self):
        self._right: set[bytes] = set()

    def check(self, event: Event, shadow: Shadow, report: Report) -> None:
        words = event.pages.tobytes()
        if words in self._right:
            return
        told: dict[int, dict[tuple[int, int], list[Row]]] = {}
        for rank, first, count, name, size in event.pages.reshape(-1, ROW).tolist():
            told.setdefault(rank, {}).setdefault((first, count), []).append((name, size))
        right = True
        for (first, count), mine in told.get(event.token, {}).items():
            for rank in range(first, first + count):
                # A rank that tells nothing at all is lost, or has ended.
                if rank in told and told[rank].get((first, count), []) != mine:
                    right = False
                    report(_differs((first, count), rank, mine, told[rank].get((first, count), [])))
        if right and len(self._right) < RIGHT_MAX:
            self._right.add(words)


def _differs(group: tuple[int, int], rank: int, mine: list[Row], theirs: list[Row]) -> Violation:
    ranks = f"ranks {group[0]} to {group[0] + group[1] - 1}"

    def message() -> str:
        return (
            f"collectives over {ranks}: this rank ran {_described(mine)}, rank {rank} {_described(theirs)}; "
            "a server would wait here"
        )

    return Violation("I19", "", -1, 1, message)


def _described(rows: list[Row]) -> str:
    return ", ".join(f"{NAMES[name]} of {size}" for name, size in rows) or "none"
