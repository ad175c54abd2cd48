"""The contention-free server that gives requests their nominal times. Integer microseconds.

service = FIXED_STEPS x step + new prompt tokens / prefill rate + 5/4 x output x step / accepted tokens a step

The fixed steps are what a request pays however short it is: the step in flight when it arrives, its own first chunk,
the way in and out. A quarter is what the prefill chunks of the others on its rank add to the steps that it decodes
in: a rank of the motivating run gets 1,431 requests of 0.3 s of prefill in 3,628 s, and what was evicted again.
Inside a session a turn starts ``wait`` after the end of what releases it; a root turn that sub-agents join starts
after the last of them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stress.workload.sessions import Sessions

FIXED_STEPS = 16
SHARED_PERCENT = 125


@dataclass
class Times:
    """Of every row, from its session's start (root row 0): int64[rows], microseconds."""

    wait_us: np.ndarray  # capped by idle_cap_s and divided by speed
    service_us: np.ndarray
    start_us: np.ndarray
    end_us: np.ndarray
    after: np.ndarray  # row whose end releases this one, -1 = none


def service_us(sessions: Sessions, serving) -> np.ndarray:
    """int64[rows]: nominal microseconds from a row's start to its end."""
    step_us = round(serving.step_base_ms * 1000)
    accept_milli = max(1, round(serving.accept_mean * 1000))
    rate = max(1, round(serving.prefill_tokens_per_s))
    prefill = sessions.new_tokens() * 1_000_000 // rate
    return FIXED_STEPS * step_us + prefill + sessions.output * step_us * 10 * SHARED_PERCENT // accept_milli


def nominal_times(sessions: Sessions, workload, serving) -> Times:
    """Nominal times of all rows, for sessions played from their first turn."""
    cap_us, speed_milli = round(workload.idle_cap_s * 1_000_000), max(1, round(workload.speed * 1000))
    wait = np.minimum(sessions.wait_us, cap_us) * 1000 // speed_milli
    service = service_us(sessions, serving)
    first = sessions.first_rows()
    after = np.where(first, -1, np.arange(sessions.rows) - 1)
    gap = np.where(first, 0, wait)
    helpers = np.flatnonzero((sessions.stream_after >= 0) | (sessions.stream_join >= 0))
    _, end = _streams(sessions, gap, service)
    held: dict[int, int] = {}
    for stream in helpers.tolist():
        head, last = int(sessions.stream_row[stream]), int(sessions.stream_row[stream + 1]) - 1
        release, join = int(sessions.stream_after[stream]), int(sessions.stream_join[stream])
        after[head] = release
        span = int(wait[head] + end[last])
        if join >= 0 and release >= 0 and span > held.get(join, -1):
            held[join], after[join] = span, last
    for join, span in held.items():
        gap[join] += span
    start, end = _streams(sessions, gap, service)
    for stream in helpers.tolist():
        rows = slice(int(sessions.stream_row[stream]), int(sessions.stream_row[stream + 1]))
        release = int(sessions.stream_after[stream])
        shift = (int(end[release]) if release >= 0 else 0) + int(wait[rows.start])
        start[rows] += shift
        end[rows] += shift
    return Times(wait, service, start, end, after)


def _streams(sessions: Sessions, gap: np.ndarray, service: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(start, end) of rows from their own stream's first start."""
    end = np.cumsum(gap + service)
    start = end - service
    zero = np.repeat(start[sessions.stream_row[:-1]], np.diff(sessions.stream_row))
    return start - zero, end - zero
