"""What the external store holds besides what its keys say: pages that were stored wrong, by key."""

from __future__ import annotations

import numpy as np

from stress.content.span import Span


class StoreContent:
    """Exceptions alone: without one a lookup costs nothing."""

    def __init__(self) -> None:
        self._wrong: dict[int, int] = {}  # store's key -> the key that its content was written under

    def keep(self, keys: np.ndarray, wrong: np.ndarray, found: np.ndarray) -> None:
        """int64[n] keys are stored; where `wrong` their content was written under `found`, else under themselves."""
        if wrong.any():
            self._wrong.update(zip(keys[wrong].tolist(), found[wrong].tolist(), strict=True))

    def content(self, keys: np.ndarray, expected: Span) -> tuple[Span, bool]:
        """What a load of the keys brings where `expected` is asked for, and whether it differs."""
        if not self._wrong:
            return expected, False
        pairs = zip(keys.tolist(), expected.keys.tolist(), strict=True)
        held = np.array([self._wrong.get(key, shall) for key, shall in pairs], dtype=np.int64)
        wrong = bool((held != expected.keys).any())
        return expected._replace(keys=held), wrong
