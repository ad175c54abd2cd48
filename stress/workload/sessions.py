"""Sessions: the one internal form of every trace, a struct of arrays over rows (requests) of streams of sessions.

A stream is a chain of turns over one context: the root of a session or one of its sub-agents. Rows of a stream are
adjacent, streams of a session are adjacent with the root first. Block ids are never expanded: a row keeps the first
``keep`` ids of the row before it in its stream and appends runs [start, start + count). A sub-agent is released by the
end of root row ``stream_after`` and root row ``stream_join`` waits for it (-1: nobody does).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass
class Sessions:
    """See the module. Times are integer microseconds, lengths are tokens, ``keep`` and runs count blocks."""

    block_tokens: int
    ceil_tail: bool  # the last id of a row names a partial block (Mooncake); else the tail has no id (Weka)
    shared_ids: bool  # ids mean the same text in every session; else they are private to one play of one
    timed: bool  # arrival_us was recorded on one clock for all sessions
    session_stream: np.ndarray  # int64[sessions + 1]
    stream_row: np.ndarray  # int64[streams + 1]
    stream_head: np.ndarray  # int64[streams], tokens of tools + system prompt
    stream_after: np.ndarray  # int64[streams]
    stream_join: np.ndarray  # int64[streams]
    input: np.ndarray  # int64[rows]
    output: np.ndarray  # int64[rows], >= 1
    keep: np.ndarray  # int64[rows]
    wait_us: np.ndarray  # int64[rows], from the end of what releases the row
    arrival_us: np.ndarray  # int64[rows], recorded, from the session's (timed: the trace's) start
    run_row: np.ndarray  # int64[rows + 1]
    run_start: np.ndarray  # int64[runs]
    run_count: np.ndarray  # int64[runs]
    zero_outputs: int = 0
    rows_skipped: int = 0

    @property
    def count(self) -> int:
        return len(self.session_stream) - 1

    @property
    def rows(self) -> int:
        return len(self.input)

    def first_rows(self) -> np.ndarray:
        """bool[rows]: the row opens its stream."""
        first = np.zeros(self.rows, dtype=bool)
        first[self.stream_row[:-1]] = True
        return first

    def row_stream(self) -> np.ndarray:
        """int64[rows]: the stream of each row."""
        return np.repeat(np.arange(len(self.stream_head)), np.diff(self.stream_row))

    def new_tokens(self) -> np.ndarray:
        """int64[rows]: prompt tokens that the turn before (or the shared head, in a first turn) does not hold."""
        new = self.input - self.keep * self.block_tokens
        first = self.stream_row[:-1]
        new[first] = self.input[first] - np.minimum(self.input[first], self.stream_head)
        return np.maximum(new, 0)


class SessionsBuilder:
    """Collects rows in stream order; a session's streams are added root first."""

    def __init__(self, block_tokens: int, ceil_tail: bool, shared_ids: bool, timed: bool):
        self.block_tokens, self.ceil_tail = block_tokens, ceil_tail
        self.shared_ids, self.timed = shared_ids, timed
        self.sessions: list[int] = []
        self.streams: list[int] = []
        self.heads: list[int] = []
        self.afters: list[int] = []
        self.joins: list[int] = []
        self.cells: list[tuple[int, int, int, int, int]] = []
        self.run_row: list[int] = [0]
        self.starts: list[int] = []
        self.counts: list[int] = []
        self.zero_outputs = 0
        self.rows_skipped = 0

    def session(self) -> None:
        self.sessions.append(len(self.streams))

    def stream(self, head: int, after: int = -1, join: int = -1) -> None:
        self.streams.append(len(self.cells))
        self.heads.append(head)
        self.afters.append(after)
        self.joins.append(join)

    def row(self, prompt: int, output: int, keep: int, runs, wait_us: int, arrival_us: int) -> int:
        """Adds one row and returns its index. An output of zero tokens is played as one, and counted."""
        if output == 0:
            self.zero_outputs += 1
            output = 1
        self.cells.append((prompt, output, keep, wait_us, arrival_us))
        for start, count in runs:
            self.starts.append(start)
            self.counts.append(count)
        self.run_row.append(len(self.starts))
        return len(self.cells) - 1

    def build(self) -> Sessions:
        cells = np.array(self.cells, dtype=np.int64).reshape(-1, 5)
        prompt, output, keep, wait, arrival = (np.ascontiguousarray(cells[:, k]) for k in range(5))
        return Sessions(
            self.block_tokens,
            self.ceil_tail,
            self.shared_ids,
            self.timed,
            session_stream=_ints([*self.sessions, len(self.streams)]),
            stream_row=_ints([*self.streams, len(self.cells)]),
            stream_head=_ints(self.heads),
            stream_after=_ints(self.afters),
            stream_join=_ints(self.joins),
            input=prompt,
            output=output,
            keep=keep,
            wait_us=wait,
            arrival_us=arrival,
            run_row=_ints(self.run_row),
            run_start=_ints(self.starts),
            run_count=_ints(self.counts),
            zero_outputs=self.zero_outputs,
            rows_skipped=self.rows_skipped,
        )


def _ints(values: list[int]) -> np.ndarray:
    return np.array(values, dtype=np.int64)
