"""What a trace holds, in seconds and without expanding it: the body of ``kvstress trace info``."""

from __future__ import annotations

import numpy as np

from stress.workload.generator import generate_sessions, generated_profile
from stress.workload.readers import read_source, trace_format
from stress.workload.readers.source import open_source
from stress.workload.service import nominal_times
from stress.workload.sessions import Sessions

_SHARES = (10, 50, 90, 99, 100)


GENERATED_SEED = 1
GENERATED_SESSIONS = 1_000


def trace_info(path: str) -> dict:
    """A JSON-ready dict; bad rows are counted, not raised. Raises TraceError where no row can be used.

    ``prefix_hit`` is the share of prompt tokens that an unbounded cache of this trace holds, in blocks as recorded (the
    head that Weka sessions share is not in their ids, so it counts once a session).
    """
    source = open_source(path)
    sessions = read_source(source, "skip")
    return _facts(str(path), trace_format(source), sessions)


def generated_info(name: str, workload, serving) -> dict:
    """As `trace_info`, of a generator ("generated:agentic"): its first sessions at seed 1, waits as drawn.

    ``span_s`` is that of the longest session on a server without contention with the times of ``workload`` and
    ``serving`` (records with the keys of a config's tables). Raises WorkloadError where there is no such generator.
    """
    sessions = generate_sessions(generated_profile(name), GENERATED_SEED, GENERATED_SESSIONS)
    sessions.arrival_us = nominal_times(sessions, workload, serving).start_us
    return _facts(name, "generated", sessions)


def _facts(name: str, form: str, sessions: Sessions) -> dict:
    agents = len(sessions.stream_head) - sessions.count
    roots = np.diff(sessions.stream_row)[sessions.session_stream[:-1]]
    return {
        "file": name,
        "format": form,
        "block_tokens": sessions.block_tokens,
        "sessions": sessions.count,
        "requests": sessions.rows,
        "sub_agents": agents,
        "turns": _quantiles(roots),
        "input_tokens": _quantiles(sessions.input),
        "output_tokens": _quantiles(sessions.output),
        "new_tokens": _quantiles(sessions.new_tokens()),
        "wait_s": {name: us / 1e6 for name, us in _quantiles(sessions.wait_us).items()},
        "span_s": int(sessions.arrival_us.max()) / 1e6,
        "prefix_hit": round(prefix_hit(sessions), 4),
        "zero_outputs": sessions.zero_outputs,
        "bad_rows": sessions.rows_skipped,
        "sessions_guessed": sessions.timed,
    }


def prefix_hit(sessions: Sessions) -> float:
    """Share of prompt tokens found by an unbounded prefix cache, outputs left out."""
    if not sessions.shared_ids:
        held = np.minimum(sessions.keep * sessions.block_tokens, sessions.input)
        held[sessions.first_rows()] = 0
        return int(held.sum()) / int(sessions.input.sum())
    rows = sorted(range(sessions.rows), key=lambda row: (int(sessions.arrival_us[row]), row))
    ids = expand_ids(sessions)
    seen: set[int] = set()
    held_tokens = 0
    for row in rows:
        depth = 0
        for one in ids[row]:
            if one not in seen:
                break
            depth += 1
        held_tokens += min(depth * sessions.block_tokens, int(sessions.input[row]))
        seen.update(ids[row])
    return held_tokens / int(sessions.input.sum())


def expand_ids(sessions: Sessions) -> list[list[int]]:
    """Block ids of every row: only for traces of shared ids, whose rows are short."""
    out: list[list[int]] = []
    first = sessions.first_rows()
    for row in range(sessions.rows):
        kept = [] if first[row] else out[-1][: int(sessions.keep[row])]
        for run in range(int(sessions.run_row[row]), int(sessions.run_row[row + 1])):
            start = int(sessions.run_start[run])
            kept = kept + list(range(start, start + int(sessions.run_count[run])))
        out.append(kept)
    return out


def _quantiles(values: np.ndarray) -> dict[str, int]:
    if not len(values):
        return {}
    ordered = np.sort(values)
    named = {f"p{s}" if s < 100 else "max": int(ordered[(len(ordered) - 1) * s // 100]) for s in _SHARES}
    return {**named, "mean": int(ordered.sum()) // len(ordered)}
