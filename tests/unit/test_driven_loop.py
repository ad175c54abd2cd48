"""The loop of an engine that schedules by itself, over a scripted one: who ends, leaves, is given up."""

from __future__ import annotations

from driven_bench import TIMING, Scripted, planned, run, spec_of

from stress.engine.scheduling import Row, Step, scheduled_in
from stress.operation import KIND_CODES, Kind
from stress.serving.acceptance import Acceptance
from stress.serving.driven_loop import DrivenLoop
from stress.serving.priority import LEVELS, Priorities
from stress.serving.request import (
    CANCEL_DECODE,
    CANCEL_PREFILL,
    CANCEL_QUEUE,
    CANCEL_RESULTS,
)
from stress.serving.state import ServingState


def test_requests_end_and_release_others():
    state, stuck = run(Scripted(), planned(0), planned(1, after=0), planned(2, start_us=500_000))
    assert (state.counts["finished"], stuck) == (3, [])
    assert state.last_end_us > 500_000
    assert state.marks["chunk_crossed_page"] > 0


def test_a_step_takes_as_long_as_its_prefill():
    """20 tokens of a prompt and 4 steps of one token behind it."""
    state, _ = run(Scripted(), planned(0))
    assert state.now_us == 7 * TIMING.step_us + 20


def test_drafts_are_accepted_in_part_and_the_output_ends_where_it_should():
    engine = Scripted(drafts=3)
    state, _ = run(engine, *(planned(rid, output=40) for rid in range(4)), drafts=4)
    assert state.counts["finished"] == 4
    assert 40 / 4 < engine.steps - 2 < 40


def test_a_request_that_is_preempted_comes_again():
    engine = Scripted(preempts={2: [0], 5: [1]})
    state, _ = run(engine, planned(0), planned(1))
    assert (state.counts["finished"], state.marks["retracted"]) == (2, 2)


def test_clients_leave_in_every_state():
    engine = Scripted(preempts={2: [3]})
    state, _ = run(
        engine,
        planned(0, cancel=CANCEL_QUEUE),
        planned(1, cancel=CANCEL_QUEUE),
        planned(2, cancel=CANCEL_PREFILL, cancel_tokens=10),
        planned(3, cancel=CANCEL_PREFILL, cancel_tokens=20),
        planned(4, cancel=CANCEL_DECODE, cancel_tokens=2),
        planned(5, cancel=CANCEL_RESULTS, cancel_tokens=2),
    )
    assert (state.counts["cancelled"], state.counts["finished"]) == (6, 0)
    assert engine.said == [
        (0, "abort", 0, 0),  # in the queue
        (1, "abort", 1, 8),  # while its first pass ran
        (2, "abort", 3, 0),  # when it was preempted
        (2, "abort", 2, 16),  # between two chunks
        (4, "abort", 5, 21),  # with its second token under way
        (4, "abort", 4, 21),  # between two tokens
    ]


def test_a_request_that_an_idle_engine_never_schedules_is_given_up():
    state, stuck = run(Scripted(refuses=(1,)), planned(0), planned(1))
    assert (state.counts["finished"], state.counts["stuck"]) == (1, 1)
    assert stuck == [(1, "with 20 tokens is not scheduled on an idle rank")]


def test_a_request_that_the_target_ends_early_for_nothing_is_an_error():
    class Hasty(Scripted):
        def update(self, rows):
            ended = super().update(rows)
            if 1 not in self.known or self.known[1] < 22:
                return ended
            del self.known[1]
            return (*ended, 1)

    state, stuck = run(Hasty(), planned(0), planned(1))
    assert (state.counts["finished"], state.counts["cancelled"]) == (1, 0) and "cancelled" not in state.marks
    assert stuck == [(1, "was ended by the target 3 tokens before its end")]


def test_a_request_that_is_preempted_with_nobody_beside_it_is_given_up():
    state, stuck = run(Scripted(preempts={4: [0]}), planned(0))
    assert state.counts["stuck"] == 1
    assert stuck == [(0, "has no room to decode beyond 21 tokens on an idle rank")]


def test_steps_one_at_a_time_end_where_a_run_ends():
    whole, _ = run(Scripted(preempts={3: [0]}), planned(0), planned(1))
    engine = Scripted(preempts={3: [0]})
    state = ServingState(engine, [planned(0), planned(1)], spec_of, TIMING, lambda rid, why: None)
    loop = DrivenLoop(state, Acceptance(1, 0, 1_000_000), Priorities(1, "fcfs"))
    turns = 0
    while not loop.run_step():
        turns += 1
    assert (state.last_end_us, state.counts) == (whole.last_end_us, whole.counts)
    assert turns == engine.steps


def test_priorities_are_drawn_from_the_seed_alone():
    drawn = [Priorities(7, "priority").of(rid) for rid in range(300)]
    assert set(drawn) == set(range(LEVELS))
    assert drawn == [Priorities(7, "priority").of(rid) for rid in range(300)]
    assert drawn != [Priorities(8, "priority").of(rid) for rid in range(300)]
    assert {Priorities(7, "fcfs").of(rid) for rid in range(300)} == {0}


def test_an_answer_says_the_whole_step():
    step = Step((Row(4, 0, 8, 0, False), Row(2, 9, 4, 3, True)), (7, 5))
    assert step.answer() == (2, 7, 5, 4, 0, 8, 2, 9, 4)
    assert scheduled_in(step.answer()) == ([7, 5], [(4, 0, 8), (2, 9, 4)])
    assert scheduled_in(Step((), ()).answer()) == ([], [])


def test_codes_of_older_operations_stay():
    assert list(KIND_CODES.values()) == list(range(1, 18))
    assert [KIND_CODES[kind] for kind in (Kind.ADMIT, Kind.DRAIN, Kind.SUBMIT, Kind.UPDATE)] == [
        1,
        14,
        15,
        17,
    ]
