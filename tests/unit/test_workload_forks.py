"""Forks: the same prompt twice at the same time, an output each; and a plan without them is what it was."""

import numpy as np
import pytest
from test_workload_plan import FIXTURES, arrays, plan_of

from stress.workload import WorkloadError

TRACES = ["generated:agentic-small", FIXTURES / "weka_packed.jsonl", FIXTURES / "mooncake.jsonl"]


@pytest.mark.parametrize("loop", ["closed", "open"])
@pytest.mark.parametrize("trace", TRACES)
def test_a_fork_is_the_request_before_it_but_for_its_output_and_its_client(trace, loop):
    plan = plan_of(trace, fork_rate=0.4, cancel_rate=0.5, loop=loop, page_size=64)
    forks = np.flatnonzero(plan.fork)
    assert plan.n // 5 < len(forks) < plan.n // 2 and not plan.fork[0]
    own = {"fork", "cancel", "cancel_tokens"}
    for name, values in arrays(plan).items():
        if name not in own:
            assert np.array_equal(values[forks], values[forks - 1]), name
    assert (plan.cancel[forks] != plan.cancel[forks - 1]).any()
    for i in forks.tolist():
        mine, its = plan.keys(i), plan.keys(i - 1)
        whole = int(plan.prompt_tokens[i]) // 64
        assert len(mine) == len(its) and np.array_equal(mine[:whole], its[:whole])
        assert not np.isin(mine[whole:], its).any() and (mine > 0).all()
        assert np.array_equal(plan.tokens(i, 0, whole * 64), plan.tokens(i - 1, 0, whole * 64))


def test_nobody_waits_for_a_fork():
    plan = plan_of(fork_rate=0.5)
    waits = plan.after[plan.after >= 0]
    assert len(waits) and not plan.fork[waits].any()
    assert (plan.after < np.arange(plan.n)).all()


def test_forks_count_among_the_requests_and_leave_the_others_as_they_were():
    without, forked = plan_of(), plan_of(fork_rate=0.5)
    assert without.n == forked.n == 600 and not without.fork.any()
    originals = np.flatnonzero(~forked.fork)
    for name, values in arrays(forked).items():
        if name != "after":
            assert np.array_equal(values[originals], arrays(without)[name][: len(originals)]), name
    everything = plan_of(fork_rate=1.0)
    assert everything.fork.tolist() == [False, True] * 300


def test_a_rate_that_is_no_share_is_refused():
    with pytest.raises(WorkloadError, match=r"fork_rate = 1.5: use a share between 0 and 1"):
        plan_of(fork_rate=1.5)
