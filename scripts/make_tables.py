"""Writes stress/workload/tables.py: integer quantile tables of a Weka / kv-cache-tester trace, packed or raw.

    python scripts/make_tables.py TRACE > stress/workload/tables.py

Root requests only, except for the AGENT tables. Rows are grouped by session class (turns), by growth level (mean growth of
the session's steps that lose no prefix) and by wait level (median wait), so that drawn sessions keep those ties.
"""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path

import numpy as np

from stress.workload.readers import read_trace

GRID = [0, 300, 1300, 3300, 6600, 10000, 13100, 16400, 19700, 23000, 26200, 29500, 32800, 36000, 39300, 42600, 45900,
        49200, 52400, 55700, 59000, 61600, 63600, 64600, 65100, 65340, 65440, 65500, 65536]  # fmt: skip
TURN_EDGES = [12, 24, 45, 73, 123]
RESUMED = 50_000
OUT_EDGES = [120, 400, 1200]
BANDS = [150_000, 175_000]
LEVELS, WAIT_LEVELS = 8, 4


def quantiles(values) -> list[int]:
    values = np.sort(np.asarray(values, dtype=np.int64))
    at = (np.array(GRID, dtype=np.int64) * (len(values) - 1)) // GRID[-1]
    return values[at].tolist()


def stops(path: str) -> np.ndarray:
    """bool of each root row: it ended its turn."""
    data = Path(path).read_bytes()
    data = gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data
    traces = [json.loads(line) for line in data.splitlines()]
    return np.array(
        [r["stop"] == "end_turn" for t in traces for r in t["requests"] if r["type"] != "subagent"]
    )


def level_of(values, levels: int) -> np.ndarray:
    order = np.argsort(np.argsort(values, kind="stable"), kind="stable")
    return order * levels // len(values)


class Rows:
    """Root rows of the trace with the classes of their sessions."""

    def __init__(self, path: str):
        s = self.s = read_trace(path)
        roots = s.session_stream[:-1]
        self.lo, self.hi = s.stream_row[roots], s.stream_row[roots + 1]
        self.turns = self.hi - self.lo
        self.at = np.concatenate([np.arange(a, b) for a, b in zip(self.lo, self.hi, strict=True)])
        self.session = np.repeat(np.arange(s.count), self.turns)
        self.end = np.zeros(s.rows, dtype=bool)
        self.end[self.at] = stops(path)
        later = self.at != self.lo[self.session]
        self.step, self.of = self.at[later], self.session[later]
        self.before = self.step - 1
        self.drop = s.input[self.before] // 64 - s.keep[self.step]
        self.growth = s.input[self.step] - s.input[self.before]
        self.loss = self.drop * 64 > s.input[self.before] // 2
        self.turn_class = np.searchsorted(TURN_EDGES, self.turns, side="left")
        self.first = s.input[self.lo]
        sums = np.bincount(self.of, np.where(self.loss, 0, self.growth), s.count)
        mean_growth = sums / np.maximum(np.bincount(self.of, ~self.loss, s.count), 1)
        self.level = level_of(mean_growth, LEVELS)
        median_wait = [
            np.median(s.wait_us[a + 1 : b]) if b - a > 1 else 0 for a, b in zip(self.lo, self.hi, strict=True)
        ]
        self.wait_level = level_of(np.array(median_wait), WAIT_LEVELS)


def session_tables(r: Rows) -> dict:
    resumed = (r.first > RESUMED).astype(int)
    out = {"TURNS": quantiles(r.turns), "HEAD": quantiles(r.s.stream_head[r.s.session_stream[:-1]])}
    out["FIRST"] = [quantiles(r.first[r.turn_class == c]) for c in range(6)]
    out["LEVEL_COUNTS"] = [
        [
            np.bincount(r.level[(r.turn_class == c) & (resumed == k)], minlength=LEVELS).tolist()
            for k in (0, 1)
        ]
        for c in range(6)
    ]
    out["WAIT_LEVEL_COUNTS"] = [
        np.bincount(r.wait_level[r.turn_class == c], minlength=WAIT_LEVELS).tolist() for c in range(6)
    ]
    return out


def step_tables(r: Rows) -> dict:
    s, good = r.s, ~r.loss
    out_class = np.searchsorted(OUT_EDGES, s.output[r.before], side="right")
    extern = r.growth - s.output[r.before]
    level = r.level[r.of]
    out = {"END_PPM": [int(r.end[r.at][r.level[r.session] == g].mean() * 1e6) for g in range(LEVELS)]}
    out["OUTPUT"] = [
        [quantiles(s.output[r.at][(r.level[r.session] == g) & (r.end[r.at] == e)]) for e in (False, True)]
        for g in range(LEVELS)
    ]
    out["EXTERN"] = [
        [quantiles(extern[good & (level == g) & (out_class == c)]) for c in range(4)] for g in range(LEVELS)
    ]
    waits = s.wait_us[r.step] // 1000
    out["WAIT_MS"] = [
        [quantiles(waits[(r.wait_level[r.of] == g) & (r.end[r.before] == e)]) for e in (False, True)]
        for g in range(WAIT_LEVELS)
    ]
    out["DROP_PPM"] = int((r.drop[good] > 0).mean() * 1e6)
    out["DROP"] = quantiles(r.drop[good & (r.drop > 0)])
    return out


def loss_tables(r: Rows) -> dict:
    s, loss = r.s, r.loss
    context, turn_class = s.input[r.before], r.turn_class[r.of]
    band = np.searchsorted(BANDS, context, side="right")
    base = loss[band != 1].mean()
    out = {"LOSS_PPM": [int(loss[turn_class == c].mean() * 1e6) for c in range(6)]}
    out["LOSS_BAND_PERCENT"] = [int(loss[band == b].mean() / base * 100) for b in range(3)]
    together = loss[:-1] & (r.of[1:] == r.of[:-1])
    out["LOSS_AGAIN_PPM"] = int(loss[1:][together].mean() * 1e6)
    ratio = s.input[r.step] * 1000 // context
    shrunk = ratio < 700
    out["LOSS_KEEP"] = [quantiles(s.keep[r.step][loss & k] * 64) for k in (~shrunk, shrunk)]
    out["LOSS_PERMILLE"] = [quantiles(ratio[loss & k]) for k in (~shrunk, shrunk)]
    return out


def agent_tables(r: Rows) -> dict:
    s = r.s
    agents = np.flatnonzero(s.stream_after >= -1)
    agents = np.setdiff1d(agents, s.session_stream[:-1])
    session = np.searchsorted(s.session_stream, agents, side="right") - 1
    lo, hi = s.stream_row[agents], s.stream_row[agents + 1]
    at = np.concatenate([np.arange(a, b) for a, b in zip(lo, hi, strict=True)])
    step = np.setdiff1d(at, lo)
    _, per_parent = np.unique(s.stream_after[agents], return_counts=True)
    return {
        "AGENT_SESSION_PPM": int(len(np.unique(session)) / s.count * 1e6),
        "AGENT_PARENTS": quantiles(np.unique(session[np.unique(s.stream_after[agents], return_index=True)[1]],
                                             return_counts=True)[1]),
        "AGENT_FAN_OUT": quantiles(per_parent),
        "AGENT_TURNS": quantiles(hi - lo),
        "AGENT_HEAD": quantiles(s.stream_head[agents]),
        "AGENT_FIRST": quantiles(s.input[lo]),
        "AGENT_EXTERN": quantiles(s.input[step] - s.input[step - 1] - s.output[step - 1]),
        "AGENT_OUTPUT": quantiles(s.output[at]),
        "AGENT_WAIT_MS": quantiles(s.wait_us[at] // 1000),
    }  # fmt: skip


HEADER = '''"""Integer quantile tables of real agentic sessions, for the generator. Made by scripts/make_tables.py; do not edit.

Figures counted from {sessions} Claude Code sessions ({rows} root requests) of callanjfox/kv-cache-tester (commit 94f6046,
Apache-2.0); the trace itself is not part of this file. A row of {points} numbers holds the values at the shares GRID / 65536.
First axes: turn class (TURN_EDGES), growth level, wait level; second axes: fresh or resumed, after a tool or after an end
of turn, class of the last output (OUT_EDGES), rewrite or compaction.
"""

# fmt: off
'''


def main(path: str) -> None:
    rows = Rows(path)
    tables = {
        "GRID": GRID,
        "TURN_EDGES": TURN_EDGES,
        "RESUMED": RESUMED,
        "OUT_EDGES": OUT_EDGES,
        "BANDS": BANDS,
    }
    for part in (session_tables, step_tables, loss_tables, agent_tables):
        tables.update(part(rows))
    print(HEADER.format(sessions=rows.s.count, rows=len(rows.at), points=len(GRID)), end="")
    for name, value in tables.items():
        text = f"{name} = {json.dumps(value)}"
        while len(text) > 110:
            cut = text.rfind(" ", 0, 110)
            print(text[:cut])
            text = "    " + text[cut + 1 :]
        print(text)


if __name__ == "__main__":
    main(sys.argv[1])
