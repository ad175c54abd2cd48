"""A divergence in words: what an arm did at an operation, and what explains that the arms part there.

What explains it is the first finding of either arm on that rank up to that operation; where there is none, the last
operation that both answered alike. Reads operations and the rank entries of a verdict document.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stress.engine.scheduling import scheduled_in
from stress.operation import Kind, Operation
from stress.recorder import RING_OPERATIONS
from stress.verdict_rank import rule_and_pool

_NAMES = {
    "admit": ("tokens cached", "tokens loaded"),
    "extend": ("had room",),
    "reserve": ("had room",),
    "poll": ("transfers ended",),
    "results_end": ("full pages free", "swa pages free"),
    "drain": ("full pages free", "swa pages free"),
}
_COUNTED = (Kind.RESULTS_END, Kind.DRAIN)
_OF_SCHEDULER = (Kind.SCHEDULE, Kind.UPDATE)
PARTS_SHOWN = 4  # of what a scheduler answers
_YES_NO = {"extend": "had {}room", "reserve": "had {}room"}

Entry = dict[str, Any] | None
"""A rank's entry in a verdict document; None: it gave none."""


def describe(operation: Operation | None, entry: Entry = None, ended: bool = False) -> str:
    """`admit of request 4 at 1.25 s: 512 tokens cached, 0 tokens loaded`.

    `ended`: the recording ends here; `operation` is then what raised, or None.
    """
    if operation is None:
        return f"had ended ({_how_it_ended(entry)})" if ended else "went on; this operation is not recorded"
    return f"{operation.describe()} at {operation.at_us / 1_000_000:g} s{_answered(operation, entry)}"


def why(parted: Any, entries: Mapping[str, Entry], watched: bool) -> str:
    """One to three sentences.

    Args:
        parted: a stress.divergence.Parting.
        entries: of its rank, by arm: base, then test.
        watched: whether any rule was.
    """
    sentences = [_how_they_part(parted, entries), _what_came_before(parted, entries, watched)]
    if parted.unrecorded:
        sentences.append(
            f"{_count(parted.unrecorded)} before it are not recorded in both arms (record.operations = ring keeps "
            f"the last {RING_OPERATIONS:,}), so they may part earlier; record.operations = all tells."
        )
    return " ".join(sentences)


def _answered(operation: Operation, entry: Entry) -> str:
    if operation.answer is None:
        return f": {_how_it_raised(operation.number, entry)}"
    kind = operation.kind.value
    if operation.kind in _OF_SCHEDULER and operation.answer:
        return f": {_some(_of_scheduler(operation))}"
    if kind == "admit" and not operation.answer:
        return ": refused"
    if not operation.answer or kind not in _NAMES:
        return ""
    if kind in _YES_NO:
        return f": {_YES_NO[kind].format('' if operation.answer[0] else 'no ')}"
    told = zip(operation.answer, _names(operation), strict=True)
    return f": {', '.join(f'{value} {name}' for value, name in told)}"


def _of_scheduler(operation: Operation) -> list[str]:
    """`preempted request 12` and `request 3 from 96, 32 tokens`, or `22 pages free` and `requests 3, 7 ended`."""
    if operation.kind is Kind.UPDATE:
        free, *ended = operation.answer
        return [f"{free} pages free"] + ([f"{_requests(ended)} ended"] if ended else [])
    preempted, rows = scheduled_in(operation.answer)
    told = [f"preempted {_requests(preempted)}"] if preempted else []
    told += [f"request {rid} from {start}, {tokens} tokens" for rid, start, tokens in rows]
    return told or ["nothing scheduled"]


def _some(parts: list[str]) -> str:
    more = f"; and {len(parts) - PARTS_SHOWN} more" if len(parts) > PARTS_SHOWN else ""
    return "; ".join(parts[:PARTS_SHOWN]) + more


def _requests(rids: list[int]) -> str:
    return f"request{'s' if len(rids) > 1 else ''} {', '.join(map(str, rids))}"


def _names(operation: Operation) -> list[str]:
    """What each number of an answer counts; an engine may have more pools, or fewer, than two."""
    known = _NAMES[operation.kind.value]
    if len(operation.answer) == 1 and operation.kind in _COUNTED:
        return ["pages free"]  # of an engine's one pool
    return [
        known[place] if place < len(known) else f"of pool {place}" for place in range(len(operation.answer))
    ]


def _how_it_raised(number: int, entry: Entry) -> str:
    """What was raised in this operation, as far as the rank told of it: only the first is kept."""
    asserted, error = (entry or {}).get("first_assert"), (entry or {}).get("first_error")
    if asserted and asserted["operation"] == number:
        return f"asserted in {asserted['where']}"
    if error and error["operation"] == number:
        return f"raised {error['kind']}"
    return "raised"


def _how_it_ended(entry: Entry) -> str:
    return f"{entry['status']}{', ' if entry['message'] else ''}{entry['message'] or ''}" if entry else "lost"


def _how_they_part(parted: Any, entries: Mapping[str, Entry]) -> str:
    equal = f"Equal for {_count(parted.equal)}"
    arms = list(entries)
    if parted.kind == "ended":
        arm, ended = arms[parted.ended], (parted.base, parted.test)[parted.ended]
        if ended is None:
            return f"{equal}, until {arm} ended before {parted.number:,} ({_how_it_ended(entries[arm])})."
        return f"{equal}, until {arm} {_how_it_raised(ended.number, entries[arm])} at {parted.number:,}."
    if parted.kind == "asked":
        return (
            f"{equal}, then the arms ask different things: something that no answer tells differs by then, such as "
            "the room for a request, or when a transfer is due."
        )
    return f"{equal}, then the same is answered differently: {_difference(parted, *arms)}."


def _difference(parted: Any, base: str, test: str) -> str:
    """`512 tokens cached in unpatched and 0 in patched`, for what differs."""
    ours, theirs = parted.base, parted.test
    if ours.kind in _OF_SCHEDULER and ours.answer and theirs.answer:
        mine, its = _of_scheduler(ours), _of_scheduler(theirs)
        if sorted(mine) == sorted(its):
            at = next(place for place, part in enumerate(mine) if part != its[place])
            return f"the same in another order, from {mine[at]} in {base} and {its[at]} in {test} on"
        return f"{_unlike(mine, its)} in {base} and {_unlike(its, mine)} in {test}"
    if len(ours.answer) != len(theirs.answer) or ours.kind.value in _YES_NO:
        return f"{base}{_answered(ours, None).replace(':', '')}, {test}{_answered(theirs, None).replace(':', '')}"
    told = zip(ours.answer, theirs.answer, _names(ours), strict=True)
    return ", ".join(
        f"{mine} {name} in {base} and {its} in {test}" for mine, its, name in told if mine != its
    )


def _unlike(parts: list[str], others: list[str]) -> str:
    """The parts that the others have not."""
    return _some([part for part in parts if part not in others]) or "nothing else"


def _what_came_before(parted: Any, entries: Mapping[str, Entry], watched: bool) -> str:
    found = [
        (entry["first_finding"]["operation"], place, arm, entry["first_finding"])
        for place, (arm, entry) in enumerate(entries.items())
        if entry and entry["first_finding"] and entry["first_finding"]["operation"] <= parted.number
    ]
    if found:
        number, _, arm, finding = min(found, key=lambda each: each[:2])
        page = f", page {finding['page']}" if finding["pool"] else ""
        return f"The first finding up to there: {arm} violated {rule_and_pool(finding)}{page}, at operation {number:,}."
    none = "No finding up to there" if watched else "No rule was watched"
    for arm, entry in entries.items():
        asserted = (entry or {}).get("first_assert")
        if asserted and asserted["operation"] <= parted.number and parted.kind != "ended":
            return f"{none}; {arm} asserted in {asserted['where']} at operation {asserted['operation']:,}."
    if parted.last is None:
        return f"{none}."
    return f"{none}; the last answered alike is {parted.last.number:,}, {describe(parted.last)}."


def _count(operations: int) -> str:
    return "1 operation" if operations == 1 else f"{operations:,} operations"
