"""Named faults of a linker's transfers: late, short, failed, lost, cancelled; on some ranks, by number.

A fault names no time and no chance: on its ranks it lets `after` transfers of its direction go well and hits the
next `count`, so the same run hits the same transfers. Each transfer still ends exactly once:

    late       ends well, delay_us later
    short      ends well with half of its pages (rounded down); of one page nothing is left, so that one fails
    failed     ends at its time with nothing moved
    lost       moves nothing and never ends; with delay_us it fails that much later, as by a transport's timeout
    cancelled  is withdrawn before it starts: the next poll says that it failed

linker.faulty_linker does this to transfers in virtual time, linker.sglang_plugin to those of a server. A caller that
takes a short or failed load for a whole one reads pages that nothing wrote (sgl-project/sglang#38352).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:  # a configuration is checked without numpy
    from linker.contract import TransferKind

KINDS = ("late", "short", "failed", "lost", "cancelled")
DIRECTIONS: tuple[TransferKind, ...] = ("load", "offload")


class TransferFault(NamedTuple):
    """What happens to which transfers; made by `transfer_fault`."""

    kind: str  # one of KINDS
    direction: TransferKind | None  # None: loads and offloads, counted together
    ranks: tuple[int, ...] | None  # None: every rank
    after: int
    count: int | None  # None: every later one
    delay_us: int

    def hits(self, number: int) -> bool:
        """Whether the transfer with this number (from 0, of this fault's direction) is hit."""
        return number >= self.after and (self.count is None or number < self.after + self.count)


def transfer_fault(
    kind: str,
    *,
    ranks: Sequence[int] | None = None,
    after: int = 0,
    count: int | None = None,
    delay_ms: float = 0.0,
) -> TransferFault:
    """A fault from its configuration. `kind`: one of KINDS, with -load or -offload for one direction alone.

    Raises ValueError, one line with the cure, for what can't be meant.
    """
    name, _, direction = kind.partition("-")
    if name not in KINDS or (direction and direction not in DIRECTIONS) or kind.endswith("-"):
        raise ValueError(
            f"kind: {kind!r} is no transfer fault; give one of {', '.join(KINDS)}, "
            "with -load or -offload for one direction"
        )
    if ranks is not None and (not ranks or min(ranks) < 0):
        raise ValueError(f"ranks: {list(ranks)} names no rank; give ranks from 0, or leave it out for all")
    if after < 0:
        raise ValueError(f"after: {after} is negative; give how many transfers go well first")
    if count is not None and count < 1:
        raise ValueError(f"count: {count} hits nothing; give 1 or more, or leave it out for every later one")
    delay_us = round(delay_ms * 1000) if math.isfinite(delay_ms) else -1
    if delay_us < 0 or (name == "late" and delay_us == 0):
        raise ValueError(f"delay_ms: {delay_ms:g} delays nothing; give milliseconds above 0")
    if delay_us and name not in ("late", "lost"):
        raise ValueError(f"delay_ms: a {name} transfer has no delay; leave it out, or give kind late or lost")
    where = None if ranks is None else tuple(sorted(set(ranks)))
    return TransferFault(name, direction or None, where, after, count, delay_us)


class FaultSchedule:
    """Which of one rank's transfers are hit. Of several faults that hit one, the first given has it."""

    def __init__(self, faults: Sequence[TransferFault], rank: int) -> None:
        self._faults = [fault for fault in faults if fault.ranks is None or rank in fault.ranks]
        self._seen = dict.fromkeys(DIRECTIONS, 0)
        self.injected = dict.fromkeys(KINDS, 0)  # kind -> transfers hit so far

    def draw(self, direction: TransferKind) -> TransferFault | None:
        """Counts the next transfer; the fault that hits it, None if it goes well."""
        total = sum(self._seen.values())
        chosen = None
        for fault in self._faults:
            number = total if fault.direction is None else self._seen[direction]
            if fault.direction in (None, direction) and fault.hits(number):
                chosen = fault
                self.injected[fault.kind] += 1
                break
        self._seen[direction] += 1
        return chosen
