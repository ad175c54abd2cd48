"""Closed loop: ``concurrency`` lanes, each playing one session after another on the nominal clock.

A lane's first session starts between ``start_within`` of its turns, later ones at turn 0, when the root and the
sub-agents of the one before are done. Sessions come from a shuffled queue in the order in which lanes ask; a trace that
runs out is shuffled again and replayed as new plays, whose ids share nothing with the first play but the head.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass

import numpy as np

from stress.words import below, split, words
from stress.workload.service import Times
from stress.workload.sessions import Sessions

CHECK_PLAYS = 32  # how often the lanes ask whether enough requests have started
LANE_RAMP_US = 1_000_000  # the lanes' first arrivals spread over this


@dataclass
class Placed:
    """Rows placed on the run's clock, one play after another; ``after`` is a position here, -1 = none."""

    row: np.ndarray
    play: np.ndarray
    start_us: np.ndarray
    after: np.ndarray
    sessions_played: int


class Shuffle:
    """Play number -> session: a seeded order of all sessions, shuffled anew after each pass."""

    def __init__(self, seed: int, count: int):
        self._base, self._count = split(seed, "workload/order"), count
        self._pass, self._order = -1, np.empty(0, dtype=np.int64)

    def session(self, play: int) -> int:
        lap, at = divmod(play, self._count)
        if lap != self._pass:
            self._pass = lap
            self._order = np.argsort(words(self._base, lap, np.arange(self._count)), kind="stable")
        return int(self._order[at])


def place_lanes(sessions: Sessions, times: Times, workload, seed: int, *, shuffle: bool) -> Placed:
    """Plays sessions until ``duration_s`` or until ``requests`` starts precede every lane's next session."""
    limit_us, lanes = round(workload.duration_s * 1_000_000), int(workload.concurrency)
    order = Shuffle(seed, sessions.count) if shuffle else None
    base = split(seed, "workload/lanes")
    lo, hi = (round(share * 1_000_000) for share in workload.start_within)
    start_at = (lo + below(words(base, 0, np.arange(lanes)), max(1, hi - lo))).tolist()
    queue = [(int(t), lane) for lane, t in enumerate(below(words(base, 1, np.arange(lanes)), LANE_RAMP_US))]
    heapq.heapify(queue)
    fresh = set(range(lanes))
    parts: list[tuple[np.ndarray, np.ndarray, np.ndarray, int]] = []
    placed, play = 0, 0
    while queue:
        now, lane = heapq.heappop(queue)
        if now >= limit_us:
            break
        if placed >= workload.requests and not fresh and play % CHECK_PLAYS == 0:
            started = np.concatenate([part[1] for part in parts]) < now
            if int(started.sum()) >= workload.requests:
                break
        session = order.session(play) if order else play
        if session >= sessions.count:
            break
        share = start_at[lane] if lane in fresh else 0
        fresh.discard(lane)
        rows, start, after, done = _play(sessions, times, session, share, now, limit_us)
        parts.append((rows, start, after, play))
        placed += len(rows)
        play += 1
        heapq.heappush(queue, (done, lane))
    return _join(parts, play)


def _play(sessions: Sessions, times: Times, session: int, share: int, now: int, limit_us: int):
    """(rows, start_us, after as a position in rows, end of the play) of one session started at ``now``."""
    streams = range(int(sessions.session_stream[session]), int(sessions.session_stream[session + 1]))
    root_lo, root_hi = (int(r) for r in sessions.stream_row[streams.start : streams.start + 2])
    lo = root_lo + min(root_hi - root_lo - 1, (root_hi - root_lo) * share // 1_000_000)
    rows = [np.arange(lo, root_hi)]
    for stream in streams[1:]:
        release = int(sessions.stream_after[stream])
        if release >= lo or (release < 0 and lo == root_lo):
            rows.append(np.arange(int(sessions.stream_row[stream]), int(sessions.stream_row[stream + 1])))
    row = np.concatenate(rows) if len(rows) > 1 else rows[0]
    shift = now - int(times.start_us[lo])
    start, done = times.start_us[row] + shift, int(times.end_us[row].max()) + shift
    row = row[start < limit_us]
    start = start[start < limit_us]
    after = times.after[row]
    if len(rows) == 1:
        position = after - lo
        position[(after < lo) | (after >= root_hi)] = -1  # a first planned turn joins no sub-agent
    else:
        position = np.searchsorted(row, after)
        position[(after < lo) | (row[np.minimum(position, len(row) - 1)] != after)] = -1
    return row, start, position, done


def _join(parts, plays: int) -> Placed:
    """The plays one after another; ``parts`` may be empty."""
    if not parts:
        return Placed(*(np.empty(0, dtype=np.int64) for _ in range(4)), plays)
    lengths = np.array([len(p[0]) for p in parts], dtype=np.int64)
    offset = np.repeat(np.cumsum(lengths) - lengths, lengths)
    after = np.concatenate([p[2] for p in parts])
    play = np.repeat(np.array([p[3] for p in parts], dtype=np.int64), lengths)
    after = np.where(after < 0, -1, after + offset)
    return Placed(
        np.concatenate([p[0] for p in parts]), play, np.concatenate([p[1] for p in parts]), after, plays
    )
