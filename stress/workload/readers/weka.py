"""Weka / kv-cache-tester traces of Claude Code sessions, raw or packed: seconds, 64-token blocks, floor(in/64) ids.

Ids are private to a trace, so sessions share nothing but the head of tools + system prompt. A sub-agent's marker
carries the moment of its END (start = t - duration_ms); its own times count from 0, or are absolute in later corpora.
It is released by the root request before it and joined by the next one, unless it was launched asynchronously (no
duration). A bad request is left out by itself where its ids are sound, else with what follows in its stream.
"""

from __future__ import annotations

from typing import Any

import msgspec

from stress.workload.errors import TraceError
from stress.workload.readers.source import (
    NOT_JSON,
    PROMPT_TOKENS_MAX,
    ROW_CURE,
    Source,
    no_usable_row,
    split_path,
)
from stress.workload.readers.weka_stream import BadRequest, WekaRequest, WekaStream, WekaTrace
from stress.workload.sessions import Sessions, SessionsBuilder

_TRACE = msgspec.json.Decoder(WekaTrace)
_REQUEST = msgspec.json.Decoder(WekaRequest)


class _Reader:
    def __init__(self, source: Source, on_bad_row: str):
        self.source, self.skip, self.block = source, on_bad_row == "skip", 0
        self.builder: SessionsBuilder | None = None
        self.skipped = 0
        self.first_bad: TraceError | None = None

    def read(self) -> Sessions:
        for line, text in self.source.documents():
            try:
                self._trace(line, text)
            except TraceError as bad:
                self._skip(bad)
        if self.builder is None or not self.builder.cells:
            raise no_usable_row(self.source.path, self.skipped, self.first_bad)
        self.builder.rows_skipped = self.skipped
        return self.builder.build()

    def _skip(self, bad: TraceError, rows: int = 1) -> None:
        """Leaves rows out, or raises where none is to be."""
        if not self.skip:
            raise bad
        self.first_bad = self.first_bad or bad
        self.skipped += rows

    def _decode(self, decoder: Any, line: int, text: Any, inside: str = "") -> Any:
        try:
            return decoder.decode(text)
        except msgspec.ValidationError as error:
            reason, field = split_path(error)
            field = f"{inside}.{field}".strip(".")
            raise TraceError(self.source.path, line, field, f"{reason}; {ROW_CURE}") from None
        except NOT_JSON as error:
            raise self.source.cut(line, error, inside) from None

    def _trace(self, line: int, text: bytes) -> None:
        trace = self._decode(_TRACE, line, text)
        if trace.block_size < 1 or (self.block and trace.block_size != self.block):
            reason = f"{trace.block_size}, expected {self.block or '1 or more'}; split the file by block size"
            raise TraceError(self.source.path, line, "block_size", reason)
        if self.builder is None:
            self.block = trace.block_size
            self.builder = SessionsBuilder(self.block, ceil_tail=False, shared_ids=False, timed=False)
        root, agents = [], []
        stream = WekaStream(self.block)
        head = self._head(trace, "", line)
        for place, request in self._requests(trace.requests, "requests", line):
            if request.type == "subagent":
                agents.append((place, request, len(root)))
            elif (row := self._row(stream, request, place, line)) is not None:
                root.append((request, *row))
        if root:
            self._session(root, agents, head, line)
        elif not self.skip:
            raise TraceError(self.source.path, line, "requests", f"a trace without requests; {ROW_CURE}")

    def _requests(self, raws: list[msgspec.Raw], inside: str, line: int):
        """(place, request) of the requests that decode; a broken one ends the stream, as its ids are unknown."""
        for index, raw in enumerate(raws):
            place = f"{inside}[{index}]"
            try:
                yield place, self._decode(_REQUEST, line, raw, place)
            except TraceError as bad:
                self._skip(bad, len(raws) - index)
                return

    def _row(self, stream: WekaStream, request: WekaRequest, place: str, line: int):
        try:
            return stream.row(request)
        except BadRequest as bad:
            self._skip(
                TraceError(self.source.path, line, f"{place}.{bad.field}", f"{bad.reason}; {ROW_CURE}")
            )
            if not bad.chained:
                stream.blocks, stream.ids = 0, []
            return None

    def _head(self, holder: WekaTrace | WekaRequest, place: str, line: int) -> int:
        head = (holder.tool_tokens or 0) + (holder.system_tokens or 0)
        if not 0 <= head <= PROMPT_TOKENS_MAX or (holder.tool_tokens or 0) < 0:
            raise TraceError(
                self.source.path,
                line,
                f"{place}tool_tokens",
                f"{head} tokens of tools and system, 0 to {PROMPT_TOKENS_MAX} are possible; {ROW_CURE}",
            )
        return head

    def _session(self, root, agents, head: int, line: int) -> None:
        """Files one session: the root stream, then its sub-agents."""
        builder = self.builder
        builder.session()
        builder.stream(head)
        base, joined = len(builder.cells), {}
        for _, marker, place in agents:
            if marker.duration_ms is not None:
                joined[place] = max(joined.get(place, 0.0), marker.t)
        before: WekaRequest | None = None
        for place, (request, keep, new) in enumerate(root):
            wait = _wait(before, request)
            if place in joined and place:
                wait = max(0.0, request.t - joined[place])
            builder.row(request.prompt, request.output, keep, new, _us(wait), _us(request.t - root[0][0].t))
            before = request
        for place, marker, at in agents:
            self._agent(place, marker, at, root, base, line)

    def _agent(self, place: str, marker: WekaRequest, at: int, root, base: int, line: int) -> None:
        stream, rows, zero = WekaStream(self.block), [], None
        head = self._head(marker, f"{place}.", line)
        began = marker.t - (marker.duration_ms or 0) / 1000
        for inner, request in self._requests(marker.requests or [], f"{place}.requests", line):
            if request.type == "subagent":
                reason = f"a sub-agent inside a sub-agent is not read; {ROW_CURE}"
                self._skip(TraceError(self.source.path, line, inner, reason))
                continue
            if zero is None:
                absolute = request.t >= began > 1 or request.t >= marker.t > 0
                zero = request.t if absolute else 0.0
            if (row := self._row(stream, request, inner, line)) is not None:
                rows.append((request, *row))
        if not rows:
            return
        released = base + at - 1 if at else -1
        joins = base + at if marker.duration_ms is not None and at and at < len(root) else -1
        self.builder.stream(head, released, joins)
        parent = root[at - 1][0] if at else None
        wait = max(0.0, began - parent.t - (parent.api_time or 0.0)) if parent else 0.0
        before: WekaRequest | None = None
        for request, keep, new in rows:
            wait = _wait(before, request) if before else wait
            arrival = max(0.0, began - root[0][0].t) + max(0.0, request.t - zero)
            self.builder.row(request.prompt, request.output, keep, new, _us(wait), _us(arrival))
            before = request


def read_weka(source: Source, on_bad_row: str) -> Sessions:
    """Sessions (``floor`` tail, local ids); raises TraceError, see the package."""
    return _Reader(source, on_bad_row).read()


def _wait(before: WekaRequest | None, now: WekaRequest) -> float:
    """Seconds from the end of the request before to this one: think_time, or what the times leave for it."""
    if before is None:
        return 0.0
    if now.think_time is not None:
        return now.think_time
    return max(0.0, now.t - before.t - (before.api_time or 0.0))


def _us(seconds: float) -> int:
    return round(seconds * 1_000_000)
