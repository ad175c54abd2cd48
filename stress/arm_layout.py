"""Which ranks an arm runs on, and the layout that it has there.

Arms that run one after another each have all ranks of the layout. Arms in parallel (arms.mode) have ranks of their
own, written as ranges; the attention TP groups stay as large as the layout's. A rank's number is its place in the
whole layout, its index the place among its arm's ranks: what a rank decides depends on the index alone, so an arm
does the same on ranks 4-7 as on ranks 0-3.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from stress.config_schema import Config, Layout

_RANGE = re.compile(r"([0-9]{1,4})(?:-([0-9]{1,4}))?\Z")
CURE = 'write ranges such as "0-3" or "0,2,4-6"'


def parse_ranks(text: str) -> tuple[int, ...]:
    """The numbers of "0,2,4-6", ascending. Raises ValueError, with the cure."""
    numbers: list[int] = []
    for part in text.split(","):
        found = _RANGE.match(part.strip())
        if found is None:
            raise ValueError(f"{part.strip()[:40]!r} is no rank and no range of ranks; {CURE}")
        first = int(found[1])
        last = int(found[2] or first)
        if last < first:
            raise ValueError(f"the range {part.strip()} ends before it begins; write {last}-{first}")
        numbers += range(first, last + 1)
    numbers.sort()
    twice = [number for number, after in pairwise(numbers) if number == after]
    if twice:
        raise ValueError(f"rank {twice[0]} is named twice; name each rank once")
    return tuple(numbers)


def is_parallel(config: Any) -> bool:
    """Whether the arms run at the same time."""
    return config.arms.mode == "parallel"


def arm_ranks(config: Any, arm: str) -> tuple[int, ...]:
    """The numbers of an arm's ranks, ascending; a rank's index is its place here."""
    if not is_parallel(config):
        return tuple(range(config.layout.tp_size))
    return parse_ranks(str(config.arms.record(arm).ranks))


def arm_layout(config: Any, arm: str) -> Layout:
    """The layout that an arm has on its ranks."""
    return config.layout.of(len(arm_ranks(config, arm)))


def broken_ranks(config: Config) -> Iterator[str]:
    """One line `PATH: what; the cure` for each rule of arms in parallel that is broken."""
    taken: dict[int, str] = {}
    for name, arm in config.arms.named.items():
        path = f"arms.{name}.ranks"
        if not is_parallel(config):
            if arm.ranks is not None:
                yield (
                    f"{path}: arms that run one after another each have all ranks; leave it out, "
                    "or set arms.mode = parallel"
                )
            continue
        if arm.ranks is None:
            yield f"{path}: missing, arms.mode = parallel gives each arm ranks of its own; {CURE}"
            continue
        try:
            ranks = parse_ranks(str(arm.ranks))
        except ValueError as error:
            yield f"{path}: {error}"
            continue
        yield from _broken_share(config, path, ranks)
        shared = next((rank for rank in ranks if rank in taken), None)
        if shared is not None:
            yield f"{path}: rank {shared} is one of {taken[shared]} too; give each arm ranks of its own"
        taken |= dict.fromkeys(ranks, path)


def _broken_share(config: Config, path: str, ranks: tuple[int, ...]) -> Iterator[str]:
    layout = config.layout
    if ranks[-1] >= layout.tp_size:
        yield (
            f"{path}: there is no rank {ranks[-1]}, layout.tp_size = {layout.tp_size} has 0 to "
            f"{layout.tp_size - 1}; name those, or raise layout.tp_size"
        )
    if len(ranks) % layout.attn_tp_size:
        yield (
            f"{path}: {len(ranks)} ranks can't be cut into attention TP groups of {layout.attn_tp_size} "
            f"(layout.tp_size / layout.dp_size); name a multiple of {layout.attn_tp_size}"
        )
