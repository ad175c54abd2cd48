"""Short words for the prefix cache's tests."""

from __future__ import annotations

import numpy as np

from allocator.prefix_cache import PrefixCache


def ids(*values: int) -> np.ndarray:
    return np.array(values, dtype=np.int64)


def put(cache: PrefixCache, keys, pages, live=None, protected: int = 0):
    return cache.insert(ids(*keys), ids(*pages), np.array(live or [True] * len(keys), dtype=bool), protected)


def gone(victims) -> list[list[int]]:
    return [victim.pages.tolist() for victim in victims]
