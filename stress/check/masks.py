"""What a mask says, by its bytes: numpy's own `any`, `all` and `count_nonzero` are Python functions, and cost more than
a look at some hundred pages does."""

from __future__ import annotations

import numpy as np


def any_of(mask: np.ndarray) -> bool:
    """Whether any of bool[n] is True."""
    return 1 in mask.tobytes()


def all_of(mask: np.ndarray) -> bool:
    """Whether all of bool[n] are True."""
    return 0 not in mask.tobytes()
