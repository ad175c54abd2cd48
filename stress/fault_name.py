"""How an arm names its faults: `F06`, two composed as `F06+F13`, on some ranks alone as `F16@3` or `F16@0,2`.

`dry:` in front makes a clean twin: the same places are watched, so that the run tells when it came to a fault's
trigger, and nothing wrong is done. Names are those of `stress.fault_catalogue`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from stress.fault_catalogue import FAULTS

DRY = "dry:"
_ONE = re.compile(r"(?P<id>[A-Za-z][A-Za-z0-9]*)(@(?P<ranks>\d+(,\d+)*))?\Z")


class NamedFaults(NamedTuple):
    """`chosen`: (fault, its ranks or None for all)."""

    chosen: tuple[tuple[str, frozenset[int] | None], ...]
    dry: bool

    def of_rank(self, rank: int) -> tuple[str, ...]:
        """The faults of one rank, in the order given."""
        return tuple(fault for fault, ranks in self.chosen if ranks is None or rank in ranks)


def parse_faults(text: str | None) -> NamedFaults:
    """The faults that `text` names; None: none. Raises ValueError, one line with the cure."""
    if text is None:
        return NamedFaults((), False)
    dry = text.startswith(DRY)
    chosen = tuple(_parse_one(part.strip()) for part in text.removeprefix(DRY).split("+"))
    names = [fault for fault, _ in chosen]
    if len(set(names)) < len(names):
        raise ValueError(f"{text!r} names a fault twice; name each once, with all its ranks (F16@0,3)")
    return NamedFaults(chosen, dry)


def join_faults(texts: Sequence[str]) -> str:
    """One text for the faults that several name. Raises ValueError for clean twins beside faults that act."""
    dry = {text.startswith(DRY) for text in texts}
    if len(dry) > 1:
        raise ValueError("dry: keeps all faults of an arm from acting; write it in front of each, or of none")
    return f"{DRY if dry == {True} else ''}{'+'.join(text.removeprefix(DRY) for text in texts)}"


def _parse_one(part: str) -> tuple[str, frozenset[int] | None]:
    match = _ONE.match(part)
    if match is None:
        raise ValueError(f"{part!r} is no fault; write F06, F06+F13, F16@3, or dry:F06 for its clean twin")
    fault = match["id"].upper()
    if fault not in FAULTS:
        raise ValueError(f"unknown fault {part!r}; the faults are {', '.join(FAULTS)}")
    ranks = match["ranks"]
    return fault, None if ranks is None else frozenset(map(int, ranks.split(",")))
