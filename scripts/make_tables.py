"""Writes stress/workload/tables.py: integer quantile tables of a Weka / kv-cache-tester trace, packed or raw.

    python scripts/make_tables.py TRACE > stress/workload/tables.py

Root requests only, except for the AGENT tables. Rows are grouped by session class (turns), growth level (mean log of
new tokens of the steps that lose no prefix), output level and wait level (mean, waits capped at 300 s), so that drawn
sessions keep those ties. Level means are shrunk to the mean of all, or short sessions would fill both ends.
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
TURN_EDGES = [12, 24, 45, 73, 123, 190]
TURN_CLASSES = len(TURN_EDGES) + 1
RESUMED = 50_000
OUT_EDGES = [120, 400, 1200]
EARLY_EDGES = [25_000, 50_000]
LOSS_EDGE = 100_000
BANDS = [50_000, 100_000, 140_000, 150_000, 160_000, 170_000, 200_000, 400_000]
LEVELS, WAIT_LEVELS, PRIOR_STEPS = 6, 12, 5
WAIT_CAP_US, OUTPUT_CAP = 300_000_000, 5_000


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
        self.resumed = (self.first > RESUMED).astype(int)
        steps = np.bincount(self.of, minlength=s.count)
        new = s.input[self.step] - s.keep[self.step] * 64
        self.level = level_of(_shrunk_mean(self.of, np.log(np.maximum(new, 1)), ~self.loss, s.count), LEVELS)
        capped = np.minimum(s.output[self.at], OUTPUT_CAP)
        self.out_level = level_of(_shrunk_mean(self.session, capped, capped > 0, s.count), LEVELS)
        wait = np.minimum(s.wait_us[self.step], WAIT_CAP_US)
        self.wait_level = level_of(_shrunk_mean(self.of, wait, steps[self.of] > 0, s.count), WAIT_LEVELS)


def _shrunk_mean(of, value, use, count: int) -> np.ndarray:
    """Session means, drawn to the mean of all by PRIOR_STEPS steps, so that short sessions are not all extreme."""
    sums, steps = np.bincount(of[use], value[use], count), np.bincount(of[use], minlength=count)
    return (sums + PRIOR_STEPS * value[use].mean()) / (steps + PRIOR_STEPS)


def session_tables(r: Rows) -> dict:
    out = {"TURNS": quantiles(r.turns), "HEAD": quantiles(r.s.stream_head[r.s.session_stream[:-1]])}
    out["FIRST"] = [quantiles(r.first[r.turn_class == c]) for c in range(TURN_CLASSES)]
    out["LEVEL_COUNTS"] = [
        [
            np.bincount(r.level[(r.turn_class == c) & (r.resumed == k)], minlength=LEVELS).tolist()
            for k in (0, 1)
        ]
        for c in range(TURN_CLASSES)
    ]
    out["OUT_LEVEL_COUNTS"] = [
        np.bincount(r.out_level[r.level == g], minlength=LEVELS).tolist() for g in range(LEVELS)
    ]
    out["WAIT_LEVEL_COUNTS"] = [
        np.bincount(r.wait_level[r.turn_class == c], minlength=WAIT_LEVELS).tolist()
        for c in range(TURN_CLASSES)
    ]
    return out


def step_tables(r: Rows) -> dict:
    s, good = r.s, ~r.loss
    out_class = np.searchsorted(OUT_EDGES, s.output[r.before], side="right")
    extern = r.growth - s.output[r.before]
    level, late = r.level[r.of], np.searchsorted(EARLY_EDGES, s.input[r.before], side="right")
    out = {
        "END_PPM": [int(r.end[r.at][r.wait_level[r.session] == g].mean() * 1e6) for g in range(WAIT_LEVELS)]
    }
    out["OUTPUT"] = [
        [quantiles(s.output[r.at][(r.out_level[r.session] == g) & (r.end[r.at] == e)]) for e in (False, True)]
        for g in range(LEVELS)
    ]
    out["EXTERN"] = [
        [
            [quantiles(extern[good & (level == g) & (out_class == c) & (late == k)]) for c in range(4)]
            for k in (0, 1, 2)
        ]
        for g in range(LEVELS)
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
    context, turn_class, resumed = s.input[r.before], r.turn_class[r.of], r.resumed[r.of]
    band = np.searchsorted(BANDS, context, side="right")
    ratio = s.input[r.step] * 1000 // context
    shrunk = ratio < 700
    rate, share = np.zeros((2, len(BANDS) + 1)), np.zeros((2, len(BANDS) + 1))
    for k in (0, 1):
        for b in range(len(BANDS) + 1):
            here = (resumed == k) & (band == b)
            rate[k, b] = loss[here].mean()
            share[k, b] = (loss & shrunk)[here].sum() / max(1, loss[here].sum())
    expected = np.bincount(turn_class, rate[resumed, band], TURN_CLASSES)
    together = loss[:-1] & (r.of[1:] == r.of[:-1])
    return {
        "LOSS_PPM": (rate * 1e6).astype(int).tolist(),
        "LOSS_SHRINK_PPM": (share * 1e6).astype(int).tolist(),
        "LOSS_TURNS_PERCENT": (np.bincount(turn_class, loss, TURN_CLASSES) / expected * 100)
        .astype(int)
        .tolist(),
        "LOSS_AGAIN_PPM": int(loss[1:][together].mean() * 1e6),
        "LOSS_KEEP": [quantiles(s.keep[r.step][loss & k] * 64) for k in (~shrunk, shrunk)],
        "LOSS_PERMILLE": [
            [quantiles(ratio[loss & k & ((context >= LOSS_EDGE) == long)]) for long in (False, True)]
            for k in (~shrunk, shrunk)
        ],
    }


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


HEADER = '''"""Integer quantile tables of real agentic sessions. Made by scripts/make_tables.py; do not edit.

Figures counted from {sessions} Claude Code sessions ({rows} root requests) of callanjfox/kv-cache-tester (commit
94f6046, Apache-2.0); the trace itself is not part of this file. A row of {points} numbers holds the values at the
shares GRID / 65536. First axes: turn class (TURN_EDGES), growth, output or wait level; then: fresh or resumed, after a
tool or after an end of turn, context (EARLY_EDGES), class of the last output (OUT_EDGES). Losses: fresh or resumed x
context (BANDS); rewrite or compaction x context (LOSS_EDGE).
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
        "EARLY_EDGES": EARLY_EDGES,
        "LOSS_EDGE": LOSS_EDGE,
        "BANDS": BANDS,
    }
    for part in (session_tables, step_tables, loss_tables, agent_tables):
        tables.update(part(rows))
    print(HEADER.format(sessions=rows.s.count, rows=len(rows.at), points=len(GRID)), end="")
    for name, value in tables.items():
        text = f"{name} = {json.dumps(value)}"
        while len(text) > 119:
            cut = text.rfind(" ", 0, 119)
            print(text[:cut])
            text = "    " + text[cut + 1 :]
        print(text)


if __name__ == "__main__":
    main(sys.argv[1])
