"""Which engine an arm names: `reference` is built from allocator/ and linker/."""

from __future__ import annotations

import numpy as np

from stress.engine.contract import Engine


def build_engine(config, arm, device: str, warm_keys: np.ndarray) -> Engine:
    """The engine of one rank. `config`, `arm`: stress.config records. Raises ValueError for an unknown target."""
    if arm.target == "reference":
        from stress.engine.reference import build_reference

        return build_reference(config, arm, device, warm_keys)
    raise ValueError(f"target {arm.target!r}: there is none of that name; use 'reference'")
