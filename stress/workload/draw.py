"""Draws from integer quantile tables: values at the shares GRID / 65536, straight lines between them, no floats."""

from __future__ import annotations

import numpy as np

from stress.words import below
from stress.workload import tables

_GRID = np.array(tables.GRID, dtype=np.int64)
_WIDTH = np.diff(_GRID)


def quantile(table: np.ndarray, word: np.ndarray, *classes: np.ndarray | int) -> np.ndarray:
    """int64 of each uint64 word (its top 16 bits) from table[classes]: int64[..., len(GRID)]."""
    share = (word >> np.uint64(48)).astype(np.int64)
    cell = np.searchsorted(_GRID, share, side="right") - 1
    low, high = table[(*classes, cell)], table[(*classes, cell + 1)]
    return low + (high - low) * (share - _GRID[cell]) // _WIDTH[cell]


def weighted(counts: np.ndarray, word: np.ndarray, *classes: np.ndarray | int) -> np.ndarray:
    """int64 index drawn with the weights counts[classes]: int64[..., m], not all zero."""
    ends = np.cumsum(counts, axis=-1)[classes]
    return (below(word, ends[..., -1])[..., None] >= ends).sum(axis=-1)


def sticky(word: np.ndarray, again: np.ndarray) -> np.ndarray:
    """Words of rows in stream order, each replaced by the last one that does not repeat (``again`` False).

    Repeating a quantile is what ties a turn to the one before it: the lag-1 correlation is the chance of ``again``.
    """
    source = np.where(again, 0, np.arange(len(word)))
    return word[np.maximum.accumulate(source)]
