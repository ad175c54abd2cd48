"""When a decoding request needs something, against a simulation that looks at every single step."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from stress.serving.events import NEVER, TurnQueue, due
from stress.serving.request import CANCEL_DECODE, CANCEL_NONE, CANCEL_RESULTS, LiveRequest, PlannedRequest


def live(gains, *, prompt=100, allocated=100, cancel=CANCEL_NONE, cancel_tokens=0) -> LiveRequest:
    output = 1 + sum(gains)
    request = LiveRequest(PlannedRequest(5, -1, 0, 0, prompt, output, cancel, cancel_tokens))
    request.produced = 1
    request.allocated = allocated
    request.cumulative = np.cumsum(np.array(gains, dtype=np.int64))
    return request


def first_step(gains, wanted) -> int:
    """Steps after which `wanted(tokens)` holds, one step at a time; NEVER if not before the last step ends."""
    tokens = 0
    for step in range(len(gains)):
        if wanted(tokens):
            return step
        tokens += gains[step]
    return NEVER


@settings(max_examples=200, deadline=None)
@given(
    gains=st.lists(st.integers(1, 4), min_size=1, max_size=120),
    prompt=st.integers(1, 300),
    slack=st.integers(0, 300),
    window_at=st.integers(0, 700),
    ahead=st.sampled_from([1, 8]),
)
def test_due_agrees_with_every_single_step(gains, prompt, slack, window_at, ahead):
    request = live(gains, prompt=prompt, allocated=prompt + slack)
    found = due(request, ahead, window_at)
    assert found.end == len(gains)
    assert found.reserve == first_step(gains, lambda t: prompt + t + ahead > prompt + slack)
    assert found.window == first_step(gains, lambda t: prompt + t >= window_at)
    assert found.cancel == found.cut == NEVER
    assert found.next_turn(10) == 10 + min(found.reserve, found.window, found.end - 1)


@settings(max_examples=100, deadline=None)
@given(gains=st.lists(st.integers(1, 4), min_size=1, max_size=60), at=st.integers(0, 300))
def test_a_client_leaves_before_the_end(gains, at):
    outside = due(live(gains, cancel=CANCEL_DECODE, cancel_tokens=at), 1, NEVER)
    inside = due(live(gains, cancel=CANCEL_RESULTS, cancel_tokens=at), 1, NEVER)
    assert 0 <= outside.cancel < outside.end
    assert 1 <= inside.cut <= inside.end


def test_queue_drops_what_an_older_epoch_left():
    queue, request = TurnQueue(), live([1, 1])
    queue.push(3, request)
    request.epoch += 1
    assert queue.next_turn() == NEVER
    queue.push(4, request)
    assert queue.pop(4) == [request]
