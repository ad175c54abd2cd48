"""What has changed in a request's table."""

from __future__ import annotations

import numpy as np

from stress.check.masks import any_of

# Of the tables' own type: numpy adds a plain 1 to int32 entry by entry, at 50 times the price.
ONCE = np.int32(1)


def first_difference(old: np.ndarray, new: np.ndarray) -> int:
    """Length of the common prefix of two arrays."""
    common = min(len(old), len(new))
    if not common:
        return 0
    differs = old[:common] != new[:common]
    return int(differs.argmax()) if any_of(differs) else common
