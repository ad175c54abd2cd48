"""Named faults of the reference engine's own parts: fault -> what it overrides.

The engine has the call order and what ends with a request, its memory slots, room and eviction, External its side of
the linker; an agreed linker is what an attention-TP group has between the two.
"""

from __future__ import annotations

from stress.engine.reference.faults.f07_group_in_group import GroupInGroup
from stress.engine.reference.faults.f08_full_side_alone import FullSideAlone
from stress.engine.reference.faults.f09_locked_value_replaced import LockedValueReplaced
from stress.engine.reference.faults.f11_frontier_too_far import FrontierTooFar
from stress.engine.reference.faults.f12_boundary_forgotten import BoundaryForgotten
from stress.engine.reference.faults.f13_recorded_unaligned import RecordedUnaligned
from stress.engine.reference.faults.f14_abort_before_batch import AbortBeforeBatch
from stress.engine.reference.faults.f15_cancelled_load_published import CancelledLoadPublished
from stress.engine.reference.faults.f16_short_load_whole import ShortLoadWhole
from stress.engine.reference.faults.f19_own_longest import OwnLongest
from stress.engine.reference.faults.f22_key_without_namespace import KeyWithoutNamespace
from stress.engine.reference.faults.f24_ring_row_as_it_is import RingRowAsItIs

ENGINE_FAULTS: dict[str, type] = {
    "F07": GroupInGroup,
    "F13": RecordedUnaligned,
    "F14": AbortBeforeBatch,
    "F22": KeyWithoutNamespace,
    "F24": RingRowAsItIs,
}
MEMORY_FAULTS: dict[str, type] = {
    "F08": FullSideAlone,
    "F09": LockedValueReplaced,
    "F11": FrontierTooFar,
    "F12": BoundaryForgotten,
}
EXTERNAL_FAULTS: dict[str, type] = {
    "F15": CancelledLoadPublished,
    "F19": OwnLongest,
}
AGREED_FAULTS: dict[str, type] = {
    "F16": ShortLoadWhole,
}
