"""A set of page keys in one numpy table, for lookups of hundreds of keys at a time.

Open addressing with linear probing, at most half full: 16 to 32 bytes a key, where a Python set of ints takes
about 100. Keys are positive; 0 marks an empty slot and is never held. Keys are never removed, so no held key
lies beyond an empty slot of its probe. What the table answers does not depend on the order of additions.
Costs for n keys: `contains` O(n) in a few vectorised rounds, `add` the same plus a sort of what is new; a
table that grows is hashed again, amortised O(1) a key.
"""

from __future__ import annotations

import numpy as np

_MIN_SLOTS = 64
_PROBE = np.arange(1, 7)[:, np.newaxis]  # slots looked at in one round beyond a key's home: int64[6, 1]
_FOLD = np.uint64(32)
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)  # 2**64 / golden ratio: consecutive keys spread evenly


class KeyTable:
    """Positive int64 keys, each held once. `len()` counts them."""

    def __init__(self) -> None:
        self._count = 0
        self._resize(_MIN_SLOTS)

    def __len__(self) -> int:
        return self._count

    def contains(self, keys: np.ndarray) -> np.ndarray:
        """bool[n], one a key of int64[n]; a key that can't be held (0 or less) is not held."""
        slot = self._home(keys)
        seen = self._slots.take(slot)
        taken = seen != 0
        found = (seen == keys) & taken
        probing = (found != taken).nonzero()[0]
        if not len(probing):
            return found
        # Few keys are not at home; look at several further slots of each in one round.
        slot, wanted = slot.take(probing), keys.take(probing)
        while len(probing):
            seen = self._slots.take((slot + _PROBE) & self._mask)
            hit = (seen == wanted).any(axis=0)
            found[probing] = hit
            further = (~hit & seen.all(axis=0)).nonzero()[0]
            probing, slot, wanted = (
                probing.take(further),
                slot.take(further) + len(_PROBE),
                wanted.take(further),
            )
        return found

    def leading(self, keys: np.ndarray) -> int:
        """How many keys of int64[n] are held before the first that is not: 0..n."""
        found = self.contains(keys)
        return len(keys) if found.all() else int(found.argmin())

    def add(self, keys: np.ndarray) -> np.ndarray:
        """Hold int64[n]; returns those that were not held before, ascending, each once.

        Raises ValueError, and adds nothing, if keys are not int64 or one is not positive.
        """
        require_keys(keys)
        if len(keys) and int(keys.min()) < 1:
            raise ValueError(f"page key {int(keys.min())} can't be stored; page keys are positive int64")
        fresh = np.unique(keys[~self.contains(keys)])
        if not len(fresh):
            return fresh
        self._count += len(fresh)
        if 2 * self._count > len(self._slots):
            held = self._slots[self._slots != 0]
            self._resize(1 << (2 * self._count - 1).bit_length())
            self._place(held)
        self._place(fresh)
        return fresh

    def _resize(self, slots: int) -> None:
        self._slots = np.zeros(slots, dtype=np.int64)
        self._mask = slots - 1
        self._shift = np.uint64(64 - self._mask.bit_length())

    def _home(self, keys: np.ndarray) -> np.ndarray:
        """The slot where each key's probe starts: int64[n]."""
        bits = keys.view(np.uint64)
        return (((bits ^ (bits >> _FOLD)) * _MULTIPLIER) >> self._shift).view(np.int64)

    def _place(self, keys: np.ndarray) -> None:
        """Put distinct keys that are not held into empty slots; there is room."""
        slot = self._home(keys)
        while len(keys):
            empty = self._slots.take(slot) == 0
            # Of several keys that want one slot the last written has it; the others see that and go on.
            self._slots[slot[empty]] = keys[empty]
            left = self._slots.take(slot) != keys
            keys = keys[left]
            slot = (slot[left] + 1) & self._mask


def require_keys(keys: np.ndarray) -> None:
    """ValueError unless keys is a numpy int64[n]."""
    if not isinstance(keys, np.ndarray) or keys.dtype != np.int64 or keys.ndim != 1:
        kind = f"{keys.dtype}{list(keys.shape)}" if isinstance(keys, np.ndarray) else type(keys).__name__
        raise ValueError(f"page keys are {kind}; give a numpy array int64[n]")
