"""I17 where a step is scheduled whole: a page may be found before the pass that writes it, if that pass will write it.

Each control has a clean twin, which differs in what the control does wrong alone.
"""

import pytest
from block_bench import BLOCKS, BlockBench

from stress.check.event import EventKind


def schedule(bench, *steps):
    """One operation that does these things in order."""
    bench.do("schedule", -1, lambda: [do() for do in steps])


def given(bench, count=2):
    """Request 1 has new blocks, and nothing is written yet."""
    return bench.lend(1, count)


def test_i17_takes_what_a_request_ahead_in_the_same_step_will_write():
    bench = BlockBench()
    blocks = given(bench)
    schedule(bench, lambda: bench.promise(1, blocks), lambda: bench.find(2, blocks))
    bench.write(1, blocks)
    bench.match(3, full=blocks)
    bench.clean()


def test_i17_a_promise_lasts_for_its_own_step():
    bench = BlockBench()
    blocks = given(bench)
    schedule(bench, lambda: bench.promise(1, blocks))
    schedule(bench, lambda: bench.find(2, blocks))
    finding = bench.only("I17")
    assert (finding.operation, finding.noticed, finding.page) == (1, 3, blocks[0].block_id)


def preempted(bench, blocks):
    """Request 1 loses its slots in the step that gave them."""

    def withdraw():
        bench.promise(1, blocks, EventKind.WITHDRAWN)
        bench.pool.free_blocks(reversed(blocks))

    bench.do("schedule", 1, lambda: [bench.promise(1, blocks), withdraw()], full=[])


def test_i17_a_request_that_loses_its_slots_in_the_step_that_gave_them():
    """As vllm#57580, where the scheduler goes by priority: the blame is that step's, not the lend's."""
    bench = BlockBench()
    blocks = given(bench)
    preempted(bench, blocks)
    bench.match(2, full=blocks[:1])
    finding = bench.only("I17")
    assert (finding.operation, finding.noticed, finding.page) == (2, 3, blocks[0].block_id)
    assert finding.message == (
        "request 2 finds page 1 of full, but nothing has written it because its request lost its slots in the same "
        "step, operation 2 (schedule of request 1)"
    )
    assert any(line.startswith("2 blocks page 1 will not be written") for line in finding.history)


def test_i17_is_silent_where_its_pass_had_run_before():
    """The twin: preempted a step later, so that the pass has written what is found."""
    bench = BlockBench()
    blocks = given(bench)
    schedule(bench, lambda: bench.promise(1, blocks))
    bench.write(1, blocks)
    bench.do("schedule", 1, lambda: bench.pool.free_blocks(reversed(blocks)), full=[])
    bench.match(2, full=blocks)
    bench.clean()


def test_i17_a_hit_on_a_promise_that_is_withdrawn_after_it():
    bench = BlockBench()
    blocks = given(bench)
    schedule(
        bench,
        lambda: bench.promise(1, blocks),
        lambda: bench.find(2, blocks),
        lambda: bench.promise(1, blocks, EventKind.WITHDRAWN),
    )
    finding = bench.only("I17")
    assert (finding.operation, finding.noticed) == (2, 2)
    assert bench.ledger.findings == {"I17": 2}


@pytest.mark.parametrize("again", [False, True])
def test_i17_what_was_withdrawn_stays_so_until_it_is_written(again):
    """Found and taken out of the free queue it is still not written; blamed is the step that is at fault."""
    bench = BlockBench()
    blocks = given(bench)
    preempted(bench, blocks)
    bench.do("admit", 2, lambda: bench.pool.touch(blocks), full=blocks)
    if again:
        bench.write(2, blocks)
    bench.match(3, full=blocks)
    if again:
        bench.clean()
    else:
        assert bench.only("I17").operation == 2


def test_i17_a_new_lend_forgets_what_was_withdrawn():
    bench = BlockBench()
    blocks = given(bench)
    preempted(bench, blocks)
    every = bench.lend(2, BLOCKS)
    bench.match(3, full=every[-1:])
    assert bench.only("I17").operation == 3


def test_a_pass_reads_what_a_request_of_its_own_writes():
    bench = BlockBench(also=("reads",))
    blocks = given(bench)
    schedule(bench, lambda: bench.promise(1, blocks), lambda: bench.find(2, blocks))
    bench.read(2, [block.block_id for block in blocks], "whole")
    bench.write(1, blocks)
    bench.clean()


@pytest.mark.parametrize("late", ["withdrawn", "by the pass before"])
def test_i17_a_pass_reads_what_no_request_of_its_own_writes(late):
    bench = BlockBench(also=("reads",))
    blocks = given(bench)
    others = bench.lend(3, 1)
    steps = [lambda: bench.promise(1, blocks)]
    if late == "withdrawn":
        steps.append(lambda: bench.promise(1, blocks, EventKind.WITHDRAWN))
    schedule(bench, *steps)
    if late == "by the pass before":
        schedule(bench, lambda: bench.promise(3, others))
    bench.read(2, [block.block_id for block in blocks], "whole")
    finding = bench.only("I17")
    assert finding.page == blocks[0].block_id and "request 2 reads page 1" in finding.message
