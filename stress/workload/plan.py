"""The fixed workload of one run: a struct of arrays over requests in nominal-start order, the same on every rank.

What is random is drawn here, before the run, from one seed split by name; a rank only waits, serves and counts. Closed
loop: a turn is released by the end of the one before (``after``) plus ``wait_us``; a play's first turn arrives at its
nominal start, so that no rank waits for another rank's contention. Open loop: every request arrives at ``start_us``.
Page keys are expanded one request at a time and cheapest in the plan's order.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from stress.words import below, chance, hash_ids, split, words
from stress.workload.arrivals import place_arrivals
from stress.workload.errors import WorkloadError
from stress.workload.forks import with_forks
from stress.workload.generator import generate_sessions, generated_profile
from stress.workload.keys import PageKeys, check_page_size
from stress.workload.lanes import Placed, place_lanes
from stress.workload.readers import read_trace
from stress.workload.service import nominal_times
from stress.workload.sessions import Sessions
from stress.workload.tokens import page_tokens

CANCEL_NONE, CANCEL_QUEUE, CANCEL_PREFILL, CANCEL_DECODE, CANCEL_RESULTS = range(5)
# Shares of cancels of a million: in queue 20 %, in prefill 30 %, in decode 25 %, in result processing 25 %.
_CANCEL_BOUNDS = (200_000, 500_000, 750_000, 1_000_000)


@dataclass
class Plan:
    """See the module. Lengths are tokens, times integer microseconds; index = request."""

    n: int
    page_size: int
    session: np.ndarray  # int64[n], a play of a session: replays are other sessions
    # int32[n], row of the session, sub-agents after the root; unique in a session but for forks
    turn: np.ndarray
    rank: np.ndarray  # int32[n]
    after: np.ndarray  # int64[n], request whose END releases this one, -1: arrives at start_us
    wait_us: np.ndarray  # int64[n], from that end to this arrival
    start_us: np.ndarray  # int64[n], nominal start
    prompt_tokens: np.ndarray  # int64[n]
    output_tokens: np.ndarray  # int64[n], >= 1
    cancel: np.ndarray  # int8[n]: a CANCEL_ code; RESULTS means in decode, inside result processing
    # int64[n]; PREFILL: prompt position reached, DECODE and RESULTS: output tokens reached
    cancel_tokens: np.ndarray
    namespace: np.ndarray  # int32[n]
    fork: np.ndarray  # bool[n]: the request before it once more, see forks.py
    rows_skipped: int = 0
    zero_outputs: int = 0
    row: np.ndarray = field(default=None, repr=False)
    stream: np.ndarray = field(default=None, repr=False)
    page_keys: PageKeys = field(default=None, repr=False)

    def keys(self, i: int) -> np.ndarray:
        """int64[ceil((prompt + output) / page_size)]: the page keys of request i."""
        keys = self.page_keys.fork_keys if self.fork[i] else self.page_keys.row_keys
        return keys(*self._address(i))

    def texts(self, i: int) -> np.ndarray:
        """As `keys`, of the text alone: what two namespaces share has the same. In namespace 0 they are its keys."""
        keys = self.page_keys.fork_keys if self.fork[i] else self.page_keys.row_keys
        return keys(*self._address(i)[:-1], 0)

    def tokens(self, i: int, lo: int, hi: int) -> np.ndarray:
        """int64[hi - lo]: token ids of positions [lo, hi) of request i, each below 2**31; see tokens.py."""
        return page_tokens(self.texts(i), self.page_size, lo, hi)

    def warm_prefixes(self, rank: int | None = None) -> Iterator[np.ndarray]:
        """int64[] each, in order from position 0: full pages that a store holds when the run starts warm.

        Those are what the turns before each session's first planned turn wrote and that turn's prompt goes on from;
        of the sessions of one rank, or of all.
        """
        _, first = np.unique(self.session, return_index=True)
        for i in first.tolist():
            row, stream, play, namespace = self._address(i)
            if row > self.page_keys.sessions.stream_row[stream] and rank in (None, int(self.rank[i])):
                yield self.page_keys.written(row, stream, play, namespace)

    def warm_keys(self) -> np.ndarray:
        """int64[], sorted, unique: the keys of all warm prefixes."""
        return np.unique(np.concatenate([np.empty(0, dtype=np.int64), *self.warm_prefixes()]))

    def contents(self) -> dict[str, int]:
        """What is played of the trace. `replays`: plays of a session that was played before."""
        sessions = self.page_keys.sessions
        _, first = np.unique(self.session, return_index=True)  # one request of each play
        of_play = np.searchsorted(sessions.session_stream, self.stream[first], side="right")
        distinct = len(np.unique(of_play))
        return {
            "requests_planned": self.n,
            "sessions": distinct,
            "replays": len(of_play) - distinct,
            "rows_skipped": self.rows_skipped,
            "zero_outputs": self.zero_outputs,
        }

    def _address(self, i: int) -> tuple[int, int, int, int]:
        return int(self.row[i]), int(self.stream[i]), int(self.session[i]), int(self.namespace[i])


def build_plan(workload, serving, *, seed: int, page_size: int, ranks: int) -> Plan:
    """The plan of ``workload`` (records with the keys of a config's [workload] and [serving]).

    Raises TraceError for a trace that cannot be read and WorkloadError for a setting that cannot be planned.
    """
    _check(workload, ranks)
    if workload.trace.startswith("generated:"):
        sessions, placed, times = _generated(workload, serving, seed)
        check_page_size(page_size, sessions.block_tokens)
    else:
        sessions = read_trace(workload.trace, workload.on_bad_row)
        check_page_size(page_size, sessions.block_tokens)
        times = nominal_times(sessions, workload, serving)
        placed = _place(sessions, times, workload, seed, shuffle=True)
    return _cut(sessions, placed, times.wait_us, workload, seed, page_size, ranks)


def plan_of(config, ranks: int | None = None) -> Plan:
    """The plan of a whole configuration; `ranks`: DP ranks, if not those of its layout. Raises as `build_plan`."""
    return build_plan(
        config.workload,
        config.serving,
        seed=config.seed,
        page_size=config.pool.page_size,
        ranks=config.layout.dp_size if ranks is None else ranks,
    )


def _check(workload, ranks: int) -> None:
    if workload.loop not in ("closed", "open"):
        raise WorkloadError(f'workload.loop = {workload.loop!r}: use "closed" or "open"')
    lo, hi = workload.start_within
    for name, good, cure in (
        ("requests", workload.requests >= 1, "at least 1"),
        ("duration_s", workload.duration_s > 0, "more than 0"),
        ("concurrency", workload.concurrency >= 1, "at least 1"),
        ("speed", workload.speed >= 0.001, "at least 0.001"),
        ("idle_cap_s", workload.idle_cap_s >= 0, "0 or more"),
        ("namespaces", workload.namespaces >= 1, "at least 1"),
        ("cancel_rate", 0 <= workload.cancel_rate <= 1, "a share between 0 and 1"),
        ("fork_rate", 0 <= workload.fork_rate <= 1, "a share between 0 and 1"),
        ("start_within", 0 <= lo <= hi <= 1, "two shares between 0 and 1 in order, such as [0.25, 0.75]"),
    ):
        if not good:
            raise WorkloadError(f"workload.{name} = {getattr(workload, name)!r}: use {cure}")
    if ranks < 1:
        raise WorkloadError(f"ranks = {ranks}: a plan needs at least one rank")


def _generated(workload, serving, seed: int):
    """Generates sessions until the lanes have enough; a session does not depend on how many there are."""
    profile = generated_profile(workload.trace)
    count = min(int(workload.concurrency), int(workload.requests)) * 2 + 32
    while True:
        sessions = generate_sessions(profile, seed, count)
        times = nominal_times(sessions, workload, serving)
        sessions.arrival_us = times.start_us
        placed = _place(sessions, times, workload, seed, shuffle=False)
        if placed.sessions_played < count or workload.loop == "open":
            return sessions, placed, times
        count *= 2


def _place(sessions: Sessions, times, workload, seed: int, *, shuffle: bool) -> Placed:
    if workload.loop == "open":
        return place_arrivals(sessions, times, workload, seed)
    return place_lanes(sessions, times, workload, seed, shuffle=shuffle)


def _cut(
    sessions: Sessions, placed: Placed, wait_us, workload, seed: int, page_size: int, ranks: int
) -> Plan:
    """Orders by (nominal start, session, turn), cuts at duration_s, then, forks counted, at ``requests``."""
    stream = sessions.row_stream()[placed.row]
    root = sessions.session_stream[np.searchsorted(sessions.session_stream, stream, side="right") - 1]
    turn = placed.row - sessions.stream_row[root]
    order = np.lexsort((turn, placed.play, placed.start_us))
    requests = int(workload.requests)
    order = order[placed.start_us[order] < round(workload.duration_s * 1_000_000)][:requests]
    order, fork = with_forks(order, placed.play[order], turn[order], workload.fork_rate, seed)
    order, fork = order[:requests], fork[:requests]
    n = len(order)
    if not n:
        raise WorkloadError(
            f"workload.duration_s = {workload.duration_s!r}: no request starts before it; raise it"
        )
    where = np.full(len(placed.row) + 1, -1, dtype=np.int64)
    where[order[~fork]] = np.flatnonzero(~fork)
    row, play, turn = placed.row[order], placed.play[order], turn[order]
    after = where[placed.after[order]]  # -1 reads the last cell, which is -1
    cancel, cancel_tokens = _cancels(
        sessions, row, play, turn, workload.cancel_rate, split(seed, "workload/cancel")
    )
    if fork.any():
        own = _cancels(sessions, row, play, turn, workload.cancel_rate, split(seed, "workload/cancel/fork"))
        cancel, cancel_tokens = np.where(fork, own[0], cancel), np.where(fork, own[1], cancel_tokens)
    plays, inverse = np.unique(play, return_inverse=True)
    return Plan(
        n=n,
        page_size=page_size,
        session=play,
        turn=turn.astype(np.int32),
        rank=hash_ids(split(seed, "workload/rank"), plays, ranks)[inverse],
        after=after,
        wait_us=np.where(after < 0, 0, wait_us[row]),
        start_us=placed.start_us[order],
        prompt_tokens=sessions.input[row],
        output_tokens=sessions.output[row],
        cancel=cancel,
        cancel_tokens=cancel_tokens,
        namespace=hash_ids(split(seed, "workload/namespace"), plays, workload.namespaces)[inverse],
        fork=fork,
        rows_skipped=sessions.rows_skipped,
        zero_outputs=sessions.zero_outputs,
        row=row,
        stream=stream[order],
        page_keys=PageKeys(sessions, page_size),
    )


def _cancels(
    sessions: Sessions, row, play, turn, cancel_rate: float, base: np.uint64
) -> tuple[np.ndarray, np.ndarray]:
    hit = chance(words(base, 0, play, turn), round(cancel_rate * 1_000_000))
    share = below(words(base, 1, play, turn), 1_000_000)
    kind = np.where(hit, 1 + np.searchsorted(_CANCEL_BOUNDS, share, side="right"), CANCEL_NONE).astype(
        np.int8
    )
    prompt, output = sessions.input[row], sessions.output[row]
    new = np.maximum(sessions.new_tokens()[row], 1)
    word = words(base, 2, play, turn)
    reached = np.where(kind == CANCEL_PREFILL, np.minimum(prompt, prompt - new + 1 + below(word, new)), 0)
    return kind, np.where(kind >= CANCEL_DECODE, 1 + below(word, output), reached)
