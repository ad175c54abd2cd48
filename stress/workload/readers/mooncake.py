"""Mooncake JSONL: timestamp in ms, 512-token blocks, global chained ids, ceil(input/512) of them.

The last id names a partial block. A row has no session, so turns are guessed: a row goes on from the request that
last used its deepest known block, if it holds every full block of that request's prompt and shares more than the
first block (which all rows share); else it opens a session. Waits are the recorded gaps between arrivals, service
included, as no end was recorded.
"""

from __future__ import annotations

import msgspec

from stress.workload.errors import TraceError
from stress.workload.readers.block_ids import common_prefix, runs
from stress.workload.readers.source import (
    NOT_JSON,
    OUTPUT_TOKENS_MAX,
    PROMPT_TOKENS_MAX,
    ROW_CURE,
    Source,
    no_usable_row,
    split_path,
)
from stress.workload.sessions import Sessions, SessionsBuilder

BLOCK_TOKENS = 512


class MooncakeRow(msgspec.Struct):
    timestamp: float
    input_length: int
    output_length: int
    hash_ids: list[int]


class _Turns:
    """Which earlier request a row goes on from."""

    def __init__(self):
        self.last_user: dict[int, int] = {}  # block id -> row that used it last
        self.ids: list[list[int]] = []
        self.session_of: list[int] = []
        self.sessions: list[list[int]] = []

    def add(self, row: MooncakeRow) -> int:
        """Files one row; returns its session."""
        ids, index = row.hash_ids, len(self.ids)
        depth = len(ids)
        while depth and ids[depth - 1] not in self.last_user:
            depth -= 1
        session = -1
        if depth >= 2:
            before = self.last_user[ids[depth - 1]]
            if depth >= len(self.ids[before]) - 1:
                session = self.session_of[before]
        if session < 0:
            session = len(self.sessions)
            self.sessions.append([])
        self.sessions[session].append(index)
        self.session_of.append(session)
        self.ids.append(ids)
        self.last_user.update(dict.fromkeys(ids, index))
        return session


def read_mooncake(source: Source, on_bad_row: str) -> Sessions:
    """Sessions (``timed``, ``shared_ids``, ``ceil_tail``); raises TraceError, see the package."""
    decoder = msgspec.json.Decoder(MooncakeRow)
    builder = SessionsBuilder(BLOCK_TOKENS, ceil_tail=True, shared_ids=True, timed=True)
    turns, rows, latest = _Turns(), [], 0.0
    first_bad: TraceError | None = None
    for line, text in source.documents():
        try:
            row = _decode(decoder, source, line, text)
            _check(row, source.path, line, latest)
        except TraceError as bad:
            if on_bad_row != "skip":
                raise
            first_bad = first_bad or bad
            builder.rows_skipped += 1
            continue
        latest = row.timestamp
        turns.add(row)
        rows.append(row)
    if not rows:
        raise no_usable_row(source.path, builder.rows_skipped, first_bad)
    zero_ms = rows[0].timestamp
    for members in turns.sessions:
        builder.session()
        builder.stream(head=0)
        before: MooncakeRow | None = None
        for index in members:
            row = rows[index]
            keep = common_prefix(before.hash_ids, row.hash_ids) if before else 0
            gap_us = round((row.timestamp - before.timestamp) * 1000) if before else 0
            arrival_us = round((row.timestamp - zero_ms) * 1000)
            builder.row(
                row.input_length, row.output_length, keep, runs(row.hash_ids, keep), gap_us, arrival_us
            )
            before = row
    return builder.build()


def _decode(decoder: msgspec.json.Decoder, source: Source, line: int, text: bytes) -> MooncakeRow:
    try:
        return decoder.decode(text)
    except msgspec.ValidationError as error:
        reason, field = split_path(error)
        raise TraceError(source.path, line, field, f"{reason}; {ROW_CURE}") from None
    except NOT_JSON as error:
        raise source.cut(line, error) from None


def _check(row: MooncakeRow, path: str, line: int, latest: float) -> None:
    expected = -(-row.input_length // BLOCK_TOKENS)
    if not 0 < row.input_length <= PROMPT_TOKENS_MAX:
        reason = f"{row.input_length} tokens, a prompt has 1 to {PROMPT_TOKENS_MAX}"
        raise TraceError(path, line, "input_length", f"{reason}; {ROW_CURE}")
    if not 0 <= row.output_length <= OUTPUT_TOKENS_MAX:
        reason = f"{row.output_length} tokens, an output has 0 to {OUTPUT_TOKENS_MAX}"
        raise TraceError(path, line, "output_length", f"{reason}; {ROW_CURE}")
    if len(row.hash_ids) != expected:
        reason = (
            f"{len(row.hash_ids)} ids for {row.input_length} tokens, blocks of {BLOCK_TOKENS} make {expected}"
        )
        raise TraceError(path, line, "hash_ids", f"{reason}; {ROW_CURE}")
    if min(row.hash_ids) < 0 or max(row.hash_ids) >= 2**62:
        raise TraceError(path, line, "hash_ids", f"an id is not between 0 and 2**62; {ROW_CURE}")
    if not 0 <= row.timestamp < 2**50:
        raise TraceError(path, line, "timestamp", f"{row.timestamp} is not a time in ms from 0; {ROW_CURE}")
    if row.timestamp < latest:
        reason = f"{row.timestamp:g} ms is before the row above ({latest:g} ms)"
        raise TraceError(
            path, line, "timestamp", f'{reason}; sort the rows by time or set workload.on_bad_row = "skip"'
        )
