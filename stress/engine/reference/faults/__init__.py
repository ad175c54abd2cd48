"""Named faults of the reference engine's own parts: fault -> what it overrides.

The engine has the call order and what ends with a request, its memory slots, room and eviction, External its side of
the linker.
"""

from __future__ import annotations

ENGINE_FAULTS: dict[str, type] = {}
MEMORY_FAULTS: dict[str, type] = {}
EXTERNAL_FAULTS: dict[str, type] = {}
