"""Named faults of a rank as a member of its attention-TP group: fault -> what it overrides in stress.tp_group."""

from __future__ import annotations

from stress.tp_faults.f18_collective_left_out import CollectiveLeftOut
from stress.tp_faults.f20_wrong_group import WrongGroup

RANK_FAULTS: dict[str, type] = {
    "F18": CollectiveLeftOut,
    "F20": WrongGroup,
}
