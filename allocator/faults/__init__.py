"""Named faults of the allocator and of the prefix cache: fault -> what it overrides.

One override a file. Each brings back a class of real bugs; the sources stand in its docstring.
"""

from __future__ import annotations

from allocator.faults.f01_unmapped_released import UnmappedReleased
from allocator.faults.f06_resolved_at_flush import ResolvedAtFlush

ALLOCATOR_FAULTS: dict[str, type] = {
    "F01": UnmappedReleased,
    "F06": ResolvedAtFlush,
}
CACHE_FAULTS: dict[str, type] = {}
