"""Open loop: every request arrives at its recorded time / speed, whether the ones before it have ended or not.

A trace on one clock (Mooncake) has its 3 s grid smeared: the rows that share a grid point spread evenly, in order, up
to the next one. Sessions with clocks of their own (Weka, generated) start at seeded moments over ``duration_s``. A
trace with fewer requests than asked gives fewer; it is not replayed.
"""

from __future__ import annotations

import numpy as np

from stress.words import below, split, words
from stress.workload.lanes import Placed
from stress.workload.service import Times
from stress.workload.sessions import Sessions

GRID_US = 100_000  # stamps closer than this are one grid point (Mooncake jitters by 1 ms)


def place_arrivals(sessions: Sessions, times: Times, workload, seed: int) -> Placed:
    """All rows at their recorded moments; nothing waits for anything (``after`` = -1)."""
    speed_milli = max(1, round(workload.speed * 1000))
    stream_session = np.repeat(np.arange(sessions.count), np.diff(sessions.session_stream))
    session = stream_session[sessions.row_stream()]
    if sessions.timed:
        start = smear(sessions.arrival_us) * 1000 // speed_milli
    else:
        span_ms = max(1, round(workload.duration_s * 1000))
        base = split(seed, "workload/arrivals")
        offset = below(words(base, np.arange(sessions.count)), span_ms) * 1000
        start = offset[session] + sessions.arrival_us * 1000 // speed_milli
    return Placed(
        np.arange(sessions.rows), session, start, np.full(sessions.rows, -1, dtype=np.int64), sessions.count
    )


def smear(arrival_us: np.ndarray) -> np.ndarray:
    """Spreads rows that share a grid point evenly up to the next grid point (the last: one usual gap)."""
    if not len(arrival_us):
        return arrival_us.copy()
    order = np.argsort(arrival_us, kind="stable")
    at = arrival_us[order]
    opens = np.concatenate(([True], np.diff(at) > GRID_US))
    group = np.cumsum(opens) - 1
    points = at[opens]
    sizes = np.bincount(group)
    gaps = np.diff(points)
    last = int(np.median(gaps)) if len(gaps) else 0
    gaps = np.append(gaps, last)
    rank = np.arange(len(at)) - (np.cumsum(sizes) - sizes)[group]
    out = np.empty_like(arrival_us)
    out[order] = points[group] + gaps[group] * rank // sizes[group]
    return out
