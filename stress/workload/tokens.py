"""Token ids of a page from its key, below 2**31 so that any engine can hash or store them.

Pages of 3 tokens or more: the token at offset o holds 21 of the key's 63 bits (o mod 3 says which), so equal keys <=>
equal tokens of the page, exactly. Smaller pages hold a 30-bit mix of the key: pages with the same prefix and different
keys get different tokens but for a chance of 2**-30 a pair.
"""

from __future__ import annotations

import numpy as np

from stress.words import mix

_CHUNK_BITS = 21


def page_tokens(keys: np.ndarray, page_size: int, lo: int, hi: int) -> np.ndarray:
    """int64[hi - lo]: tokens of positions [lo, hi) of a request with page keys ``keys`` (int64[pages])."""
    if not 0 <= lo <= hi <= len(keys) * page_size:
        raise IndexError(
            f"tokens [{lo}, {hi}) of a request with {len(keys)} pages of {page_size}: out of range"
        )
    at = np.arange(lo, hi)
    key, offset = keys[at // page_size], at % page_size
    if page_size < 3:
        return ((mix(key) >> np.uint64(34)).astype(np.int64) << 1 | offset) + 1
    part = offset % 3
    chunk = (key >> (part * _CHUNK_BITS)) & ((1 << _CHUNK_BITS) - 1)
    return chunk * 3 + part + 1
