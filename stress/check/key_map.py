"""int64 keys to int64 values in two numpy arrays, for hundreds of keys at a time; a key keeps its first value.

Open addressing with linear probing, at most half full: 32 to 64 bytes a key. Nothing is ever removed. `add` costs a few
vectorised rounds for its keys, O(1) a key; a map that grows is hashed again, amortised the same.
"""

from __future__ import annotations

import numpy as np

_MIN_SLOTS = 1024
_EMPTY = np.iinfo(np.int64).min  # no key may be this
_FOLD = np.uint64(32)
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)


class KeyMap:
    """`len()` counts the keys."""

    def __init__(self) -> None:
        self._count = 0
        self._resize(_MIN_SLOTS)

    def __len__(self) -> int:
        return self._count

    def add(self, keys: np.ndarray, values: np.ndarray) -> np.ndarray:
        """int64[n]: the value that each of int64[n] keys has from now on: its first one.

        Of equal keys that are new the value of the last among them counts as the first.
        """
        slot, held = self._find(keys)
        if held.all():
            return self._values.take(slot)
        fresh = ~held
        self._count += int(np.count_nonzero(fresh))
        if 2 * self._count > len(self._keys):
            old = self._keys != _EMPTY
            old_keys, old_values = self._keys[old], self._values[old]
            self._resize(1 << (4 * self._count - 1).bit_length())
            self._place(old_keys, old_values)
        self._place(keys[fresh], values[fresh])
        return self._values.take(self._find(keys)[0])

    def _resize(self, slots: int) -> None:
        self._keys = np.full(slots, _EMPTY)
        self._values = np.zeros(slots, dtype=np.int64)
        self._mask = slots - 1
        self._shift = np.uint64(64 - self._mask.bit_length())

    def _home(self, keys: np.ndarray) -> np.ndarray:
        bits = keys.view(np.uint64)
        return (((bits ^ (bits >> _FOLD)) * _MULTIPLIER) >> self._shift).view(np.int64)

    def _find(self, keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The slot where each key is, or the empty one where it would be, and whether it is there."""
        slot = self._home(keys)
        seen = self._keys.take(slot)
        held = seen == keys
        probing = np.flatnonzero(~held & (seen != _EMPTY))
        while len(probing):
            slot[probing] = (slot[probing] + 1) & self._mask
            seen = self._keys.take(slot[probing])
            held[probing] = seen == keys[probing]
            probing = probing[(seen != keys[probing]) & (seen != _EMPTY)]
        return slot, held

    def _place(self, keys: np.ndarray, values: np.ndarray) -> None:
        """Puts keys that are not held into empty slots; there is room."""
        slot = self._home(keys)
        while len(keys):
            empty = self._keys.take(slot) == _EMPTY
            # Of several keys that want one slot the last written has it; the others see that and go on.
            self._keys[slot[empty]] = keys[empty]
            self._values[slot[empty]] = values[empty]
            left = self._keys.take(slot) != keys
            keys, values = keys[left], values[left]
            slot = (slot[left] + 1) & self._mask
