"""The named faults: what each does, the real bugs it stands for, which configuration reaches it, which rule sees it.

A rule sees a fault at the operation at which it first acts. Some can't, by their nature: one that compares at a
boundary, in a sweep, at quiesce or by a deadline sees it at the first check that could; they are `late` here.
Imports nothing: a configuration is checked against it.
"""

from __future__ import annotations

from typing import NamedTuple


class FaultFacts(NamedTuple):
    """`rules`: one of them must fire. `late`: those of them that see it at their next check only.

    `config`: the base configuration whose workload reaches it by itself. `loaded`: whether it has a form on a
    loaded pool. `one_rank`: whether a rank alone can have it.
    """

    title: str
    sources: tuple[str, ...]
    config: str
    rules: tuple[str, ...]
    late: tuple[str, ...] = ()
    loaded: bool = True
    one_rank: bool = True


FAULTS: dict[str, FaultFacts] = {
    "F01": FaultFacts(
        "a segment free does not drop unmapped representatives", ("sglang#38519",), "paged", ("I1",)
    ),
    "F06": FaultFacts(
        "a free in a group reads its peers at the flush", ("sglang#36135", "sglang#36646"), "paged", ("I7",)
    ),
}
