"""Forks: requests that come twice at the same time with one prompt, as best-of-n and impatient clients do.

A fork counts among `workload.requests`. It belongs to the play of its original, hence to its rank and namespace, waits
for what the original waits for and releases nobody: the next turn goes on from the original. It has the original's
prompt, keys included, an output of its own, and a client of its own, who may leave.
"""

from __future__ import annotations

import numpy as np

from stress.words import chance, split, words


def with_forks(
    order: np.ndarray, play: np.ndarray, turn: np.ndarray, fork_rate: float, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """`order`: int64[n], index of each request in nominal order; `play` and `turn`: of request order[i], int64[n].

    Returns the order with the forks in it, each right behind its original, and bool[] which of them are forks.
    """
    forked = chance(words(split(seed, "workload/fork"), play, turn), round(fork_rate * 1_000_000))
    fork = np.zeros(len(order) + int(forked.sum()), dtype=bool)
    fork[np.flatnonzero(forked) + np.arange(1, int(forked.sum()) + 1)] = True
    return np.repeat(order, 1 + forked), fork
