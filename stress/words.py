"""Raw 64-bit words from one seed, split by name; integer arithmetic only.

``split(seed, "session/growth")`` names a stream, ``words(base, a, b)`` is its counter-based generator: the word at
counter (a, b) depends on nothing else, so draws may be made in any order, in any number, on any rank. The mixer is
the finaliser of SplitMix64 (Steele, Lea, Flood, OOPSLA 2014). No floats: a share is compared as an integer threshold.
"""

from __future__ import annotations

from hashlib import blake2b

import numpy as np

GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_M1 = np.uint64(0xBF58476D1CE4E5B9)
_M2 = np.uint64(0x94D049BB133111EB)
_S30, _S27, _S31 = np.uint64(30), np.uint64(27), np.uint64(31)


def split(seed: int, name: str) -> np.uint64:
    """The 64-bit base of the stream ``name`` under ``seed`` (any int): keyed blake2b."""
    key = (int(seed) & (2**64 - 1)).to_bytes(8, "little")
    return np.uint64(int.from_bytes(blake2b(name.encode(), key=key, digest_size=8).digest(), "little"))


def mix(x: np.ndarray) -> np.ndarray:
    """Bijective mixing of uint64 words (a new array of the same shape)."""
    x = np.asarray(x, dtype=np.uint64)
    with np.errstate(over="ignore"):
        x = (x ^ (x >> _S30)) * _M1
        x = (x ^ (x >> _S27)) * _M2
    return x ^ (x >> _S31)


def words(base: np.uint64, *counters: np.ndarray | int) -> np.ndarray:
    """uint64 words at the given counters (broadcast together, each >= 0)."""
    out = np.asarray(base, dtype=np.uint64)
    with np.errstate(over="ignore"):
        for counter in counters:
            out = mix(out + (np.asarray(counter).astype(np.uint64) + np.uint64(1)) * GOLDEN)
    return out


def below(word: np.ndarray, bound: np.ndarray | int) -> np.ndarray:
    """int64 in [0, bound) from each word (its top 32 bits; bound < 2**31)."""
    return ((word >> np.uint64(32)).astype(np.int64) * np.asarray(bound, dtype=np.int64)) >> 32


def chance(word: np.ndarray, per_million: np.ndarray | int) -> np.ndarray:
    """True where the word falls in the first ``per_million`` of a million equal parts."""
    return below(word, 1_000_000) < np.asarray(per_million, dtype=np.int64)


def hash_ids(base: np.uint64, ids: np.ndarray, parts: int) -> np.ndarray:
    """Keyed blake2b of each int64 id, reduced to [0, parts): which rank or namespace a session goes to."""
    if parts == 1:
        return np.zeros(len(ids), dtype=np.int32)
    key = int(base).to_bytes(8, "little")
    out = np.empty(len(ids), dtype=np.int32)
    for i, one in enumerate(ids.tolist()):
        digest = blake2b(one.to_bytes(8, "little"), key=key, digest_size=8).digest()
        out[i] = int.from_bytes(digest, "little") % parts
    return out
