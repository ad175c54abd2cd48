"""One stream of a Weka trace: its records, the checks of each request, and raw ids packed into keep/new runs.

A request with a fault raises BadRequest. Where its ids are sound they are folded into the next good request's, so that
a row left out leaves the chain of those after it whole.
"""

from __future__ import annotations

import msgspec

from stress.workload.readers.block_ids import common_prefix, first_blocks, runs
from stress.workload.readers.source import OUTPUT_TOKENS_MAX, PROMPT_TOKENS_MAX

_SECONDS_MAX = 10**10


class WekaRequest(msgspec.Struct):
    """A request, or a sub-agent marker (type "subagent") with requests of its own."""

    t: float
    type: str = "n"
    prompt: int = msgspec.field(default=-1, name="in")
    output: int = msgspec.field(default=-1, name="out")
    hash_ids: list[int] | None = None
    keep: int | None = None
    new: list[tuple[int, int]] | None = None
    api_time: float | None = None
    think_time: float | None = None
    duration_ms: float | None = None
    tool_tokens: int | None = None
    system_tokens: int | None = None
    requests: list[msgspec.Raw] | None = None


class WekaTrace(msgspec.Struct):
    requests: list[msgspec.Raw]
    block_size: int = 64
    tool_tokens: int | None = None
    system_tokens: int | None = None


class BadRequest(Exception):
    def __init__(self, field: str, reason: str, chained: bool = True):
        super().__init__(reason)
        self.field, self.reason, self.chained = field, reason, chained


class WekaStream:
    """Checks the rows of one stream in order and packs raw ids into keep/new runs."""

    def __init__(self, block: int):
        self.block, self.blocks, self.latest = block, 0, 0.0
        self.ids: list[int] = []
        self.kept: int | None = None  # blocks kept by rows left out since the last good row
        self.carried: list[tuple[int, int]] = []

    def row(self, r: WekaRequest) -> tuple[int, list[tuple[int, int]]]:
        """(keep, runs) against the last good row; raises BadRequest."""
        keep, new = self._packed(r)
        if self.kept is not None:  # fold the rows left out in between
            keep, new = min(self.kept, keep), first_blocks(self.carried, keep - self.kept) + new
        try:
            self._check(r)
        except BadRequest:
            self.kept, self.carried = keep, new
            raise
        self.kept, self.carried, self.latest = None, [], r.t
        return keep, new

    def _packed(self, r: WekaRequest) -> tuple[int, list[tuple[int, int]]]:
        if r.hash_ids is not None:
            ids = r.hash_ids
            if ids and (min(ids) < 0 or max(ids) >= 2**62):
                raise BadRequest("hash_ids", "an id is not between 0 and 2**62", chained=False)
            keep = common_prefix(self.ids, ids)
            new, count, self.ids = runs(ids, keep), len(ids), ids
        elif r.keep is not None and r.new is not None:
            keep, new = r.keep, list(r.new)
            if not 0 <= keep <= self.blocks:
                raise BadRequest("keep", f"{keep} of {self.blocks} ids of the request before", chained=False)
            if any(not (0 <= s < 2**62 and 0 < c <= PROMPT_TOKENS_MAX) for s, c in new):
                raise BadRequest("new", "a run is not [start >= 0, count >= 1]", chained=False)
            count = keep + sum(c for _, c in new)
        else:
            raise BadRequest("hash_ids", "missing, as are keep and new", chained=False)
        self.blocks = count
        return keep, new

    def _check(self, r: WekaRequest) -> None:
        _check_tokens("in", r.prompt, 1, PROMPT_TOKENS_MAX, "a prompt")
        _check_tokens("out", r.output, 0, OUTPUT_TOKENS_MAX, "an output")
        floor = r.prompt // self.block
        if self.blocks not in (floor, -(-r.prompt // self.block)):
            raise BadRequest(
                "hash_ids", f"{self.blocks} ids for {r.prompt} tokens, blocks of {self.block} make {floor}"
            )
        for name in ("t", "api_time", "think_time"):
            seconds = getattr(r, name)
            if seconds is not None and not 0 <= seconds < _SECONDS_MAX:
                raise BadRequest(name, f"{seconds:g} is not a time in seconds from 0")
        if r.t < self.latest:
            raise BadRequest("t", f"{r.t:g} s is before the request above ({self.latest:g} s)")


def _check_tokens(field: str, tokens: int, least: int, most: int, what: str) -> None:
    if tokens == -1:
        raise BadRequest(field, "missing or negative")
    if not least <= tokens <= most:
        raise BadRequest(field, f"{tokens} tokens, {what} has {least} to {most}")
