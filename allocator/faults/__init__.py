"""Named faults of the allocator and of the prefix cache: fault -> what it overrides.

One override a file. Each brings back a class of real bugs; the sources stand in its docstring.
"""

from __future__ import annotations

from allocator.faults.f01_unmapped_released import UnmappedReleased
from allocator.faults.f02_ring_pages_credited import RingPagesCredited
from allocator.faults.f03_ring_entries_kept import RingEntriesKept
from allocator.faults.f04_one_entry_cleared import OneEntryCleared
from allocator.faults.f05_old_entries_kept import OldEntriesKept
from allocator.faults.f06_resolved_at_flush import ResolvedAtFlush
from allocator.faults.f07_pile_dropped import PileDropped
from allocator.faults.f10_unlock_of_revived import UnlockOfRevived
from allocator.faults.f17_read_while_evicted import ReadWhileEvicted
from allocator.faults.f21_key_length import KeyLengthTaken
from allocator.faults.f23_not_rolled_back import NotRolledBack

ALLOCATOR_FAULTS: dict[str, type] = {
    "F01": UnmappedReleased,
    "F02": RingPagesCredited,
    "F03": RingEntriesKept,
    "F04": OneEntryCleared,
    "F05": OldEntriesKept,
    "F06": ResolvedAtFlush,
    "F07": PileDropped,
    "F23": NotRolledBack,
}
CACHE_FAULTS: dict[str, type] = {
    "F10": UnlockOfRevived,
    "F17": ReadWhileEvicted,
    "F21": KeyLengthTaken,
}
