"""Progress lines: one when something changed, none that repeats the one before, losses said."""

import io

import pytest

from stress.arm_watch import ArmProgress
from stress.command import progress
from stress.command.progress import LineProgress, describe


def state(**fields):
    values = {
        "arm": "patched",
        "ranks": 8,
        "ranks_ended": 0,
        "lost": (),
        "requests_done": 0,
        "virtual_s_min": 0.0,
        "virtual_s_max": 0.0,
        "findings": 0,
        "asserts": 0,
    }
    return ArmProgress(**{**values, **fields})


@pytest.fixture
def clock(monkeypatch):
    """Wall time in seconds, set by the test."""
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    return now


def test_a_line_that_says_nothing_new_is_not_printed(clock):
    stream = io.StringIO()
    lines = LineProgress(100, stream)
    for second, told in (
        (5, state()),
        (11, state()),
        (22, state()),
        (33, state(requests_done=7)),
        (34, state()),
    ):
        clock[0] = float(second)
        lines(told)
    assert stream.getvalue().splitlines() == [
        "patched: 8 ranks are starting",
        "patched: 7/100 requests, virtual 0-0 s, 0 ranks ended, 0 asserts, 0 findings",
    ]


def test_lost_and_silent_ranks_are_named():
    assert describe(state(lost=(3, 5)), 100) == "8 ranks are starting, ranks 3, 5 lost"
    told = describe(state(requests_done=5, virtual_s_max=3.0, ranks_ended=3, lost=(3,)), 100)
    assert told.endswith("3 ranks ended, 0 asserts, 0 findings, rank 3 lost")
    told = describe(state(lost=(3,), silent_rank=5, silent_s=45.4), 100)
    assert told.endswith(", rank 3 lost, rank 5 silent for 45 s")
    assert describe(state(lost=tuple(range(20))), 100).endswith(
        ", ranks 0, 1, 2, 3, 4, 5, 6, 7 and 12 more lost"
    )
