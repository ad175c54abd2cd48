"""The fixed plan: order, release, cuts, ranks, cancels, and one answer for one seed."""

from dataclasses import fields
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from stress.workload import TraceError, WorkloadError, build_plan

FIXTURES = Path(__file__).parents[1] / "fixtures"
SERVING = SimpleNamespace(step_base_ms=160, prefill_tokens_per_s=16000, accept_mean=2.49)


def plan_of(trace="generated:agentic-small", page_size=64, ranks=4, seed=1, **changes):
    settings = dict(
        trace=str(trace), requests=600, duration_s=3600, loop="closed", concurrency=24, idle_cap_s=30,
        start_within=[0.25, 0.75], speed=1.0, cancel_rate=0.01, fork_rate=0.0, namespaces=1,
        on_bad_row="fail",
    )  # fmt: skip
    workload = SimpleNamespace(**{**settings, **changes})
    return build_plan(workload, SERVING, seed=seed, page_size=page_size, ranks=ranks)


def arrays(plan):
    return {
        f.name: getattr(plan, f.name) for f in fields(plan) if isinstance(getattr(plan, f.name), np.ndarray)
    }


@pytest.mark.parametrize(
    "trace", ["generated:agentic-small", FIXTURES / "weka_packed.jsonl", FIXTURES / "mooncake.jsonl"]
)
@pytest.mark.parametrize("loop", ["closed", "open"])
def test_shape_and_order(trace, loop):
    plan = plan_of(trace, loop=loop, cancel_rate=0.3)
    for name, values in arrays(plan).items():
        assert len(values) == plan.n, name
    assert plan.n > 0 and (np.diff(plan.start_us) >= 0).all() and plan.start_us[0] >= 0
    assert (plan.after < np.arange(plan.n)).all() and (plan.after >= -1).all()
    assert (plan.output_tokens >= 1).all() and (plan.prompt_tokens >= 1).all()
    assert len(set(zip(plan.session.tolist(), plan.turn.tolist(), strict=True))) == plan.n
    follows = np.flatnonzero(plan.after >= 0)
    before = plan.after[follows]
    assert (plan.session[before] == plan.session[follows]).all()
    assert (plan.start_us[before] + plan.wait_us[follows] < plan.start_us[follows]).all()
    assert (plan.wait_us <= 30_000_000).all() and (plan.wait_us[plan.after < 0] == 0).all()
    if loop == "open":
        assert len(follows) == 0
    elif trace != FIXTURES / "mooncake.jsonl":  # which has one session of several turns
        assert len(follows) > plan.n // 3
    ranks = {}
    for session, rank in zip(plan.session.tolist(), plan.rank.tolist(), strict=True):
        assert ranks.setdefault(session, rank) == rank and 0 <= rank < 4


def test_one_seed_one_plan():
    a, b, c = plan_of(seed=7), plan_of(seed=7), plan_of(seed=8)
    for name, values in arrays(a).items():
        assert np.array_equal(values, arrays(b)[name]), name
    assert not np.array_equal(a.prompt_tokens, c.prompt_tokens)
    assert all(np.array_equal(a.keys(i), b.keys(i)) for i in range(0, a.n, 7))
    assert np.array_equal(a.warm_keys(), b.warm_keys())


def test_the_plan_does_not_depend_on_ranks_or_on_its_own_end():
    a, b, c = plan_of(ranks=1), plan_of(ranks=8), plan_of(requests=300)
    for name, values in arrays(a).items():
        if name != "rank":
            assert np.array_equal(values, arrays(b)[name]), name
            assert np.array_equal(values[:300], arrays(c)[name]), name


def test_known_values():
    """Pins the words, the tables and the order: another machine or numpy must give these."""
    plan = plan_of(requests=4, page_size=256)
    assert plan.prompt_tokens.tolist() == KNOWN["prompt"] and plan.start_us.tolist() == KNOWN["start"]
    assert plan.keys(3)[:3].tolist() == KNOWN["keys"]


KNOWN = {
    "prompt": [2368, 1623, 4096, 4352],
    "start": [22970, 93382, 187653, 197633],
    "keys": [1160407160787869614, 249280244149690716, 2612457544058731590],
}


def test_cuts():
    plan = plan_of(duration_s=60, requests=10**6)
    assert 24 <= plan.n < 600 and plan.start_us[-1] < 60_000_000
    longer = plan_of(duration_s=61, requests=10**6)
    assert longer.n >= plan.n and np.array_equal(longer.start_us[: plan.n], plan.start_us)
    assert plan_of(requests=1).n == 1


def test_lanes_start_within_their_share_and_recycle_at_turn_0():
    plan = plan_of(requests=3000, concurrency=16)
    _, first = np.unique(plan.session, return_index=True)
    lanes, later = first[plan.session[first] < 16], first[plan.session[first] >= 16]
    assert (plan.start_us[lanes] < 1_000_000).all() and len(lanes) == 16
    s = plan.page_keys.sessions
    length = np.diff(s.stream_row)[plan.stream[lanes]]
    share = plan.turn[lanes] / length
    assert (share <= 0.75).all() and (share > 0.25 - 1 / length).all() and (plan.turn[lanes] > 0).any()
    assert len(later) > 10 and (plan.turn[later] == 0).all() and (plan.after[later] == -1).all()
    live = [np.unique(plan.session[plan.start_us <= t]) for t in plan.start_us[:: plan.n // 20]]
    ends = {s: int(plan.start_us[plan.session == s].max()) for s in np.unique(plan.session).tolist()}
    for at, sessions in zip(plan.start_us[:: plan.n // 20].tolist(), live, strict=True):
        assert sum(ends[s] > at for s in sessions.tolist()) <= 16


def test_a_parent_waits_for_its_sub_agents():
    plan = plan_of(FIXTURES / "weka_packed.jsonl", requests=9, concurrency=1, start_within=[0, 0], seed=2)
    at = {
        (int(plan.stream[i]), int(plan.turn[i])): i
        for i in range(plan.n)
        if plan.session[i] == plan.session[0]
    }
    if plan.prompt_tokens[0] != 2600:
        at = {(int(plan.stream[i]), int(plan.turn[i])): i for i in range(plan.n) if plan.session[i] == 1}
    parent, join = at[0, 1], at[0, 2]
    first = [at[1, 5], at[2, 7]]
    assert plan.after[first].tolist() == [parent, parent]
    assert plan.wait_us[first].tolist() == [500_000, 500_000]
    last = max((at[1, 6], at[2, 8]), key=lambda i: plan.start_us[i])
    assert plan.after[join] == last and plan.wait_us[join] == 20_000_000
    assert plan.after[at[0, 1]] == at[0, 0]


def test_waits_are_capped_and_scaled():
    slow = plan_of(
        FIXTURES / "weka_packed.jsonl", concurrency=1, start_within=[0, 0], idle_cap_s=300, requests=12
    )
    fast = plan_of(
        FIXTURES / "weka_packed.jsonl",
        concurrency=1,
        start_within=[0, 0],
        idle_cap_s=300,
        requests=12,
        speed=4.0,
    )
    capped = plan_of(
        FIXTURES / "weka_packed.jsonl", concurrency=1, start_within=[0, 0], idle_cap_s=0, requests=12
    )
    assert slow.wait_us.max() == 237_000_000 and fast.wait_us.max() == 237_000_000 // 4
    assert (capped.wait_us == 0).all() and capped.start_us[-1] < fast.start_us[-1] < slow.start_us[-1]


def test_open_loop_is_the_recorded_time():
    plan = plan_of(FIXTURES / "mooncake.jsonl", loop="open")
    assert plan.n == 7, "an open loop is not replayed"
    # Two rows of the first grid point share its 3 s, three rows the next, two the last.
    assert plan.start_us.tolist() == [0, 1_500_000, 3_000_000, 4_000_000, 5_000_000, 6_000_000, 7_500_000]
    assert plan_of(FIXTURES / "mooncake.jsonl", loop="open", speed=3.0).start_us[-1] == 2_500_000
    conversation = plan.session[[1, 3, 4, 5]]
    assert len(set(conversation.tolist())) == 1 and len(set(plan.rank[[1, 3, 4, 5]].tolist())) == 1


def test_cancels():
    plan = plan_of(requests=4000, concurrency=64, cancel_rate=0.25)
    share = np.bincount(plan.cancel, minlength=5) / plan.n
    assert abs(share[1:].sum() - 0.25) < 0.03
    assert np.abs(share[1:] / share[1:].sum() - [0.2, 0.3, 0.25, 0.25]).max() < 0.05
    kind, at = plan.cancel, plan.cancel_tokens
    assert (at[kind <= 1] == 0).all()
    assert ((at[kind == 2] >= 1) & (at[kind == 2] <= plan.prompt_tokens[kind == 2])).all()
    assert ((at[kind >= 3] >= 1) & (at[kind >= 3] <= plan.output_tokens[kind >= 3])).all()
    assert not plan_of(cancel_rate=0).cancel.any() and plan_of(cancel_rate=1).cancel.all()


def test_warm_keys_are_what_earlier_turns_wrote():
    plan = plan_of(requests=300, page_size=16, namespaces=2)
    warm = plan.warm_keys()
    assert warm.dtype == np.int64 and (np.diff(warm) > 0).all() and len(warm) > 100
    held = set(warm.tolist())
    _, first = np.unique(plan.session, return_index=True)
    used, started_warm = set(), 0
    for i in first.tolist():
        keys = plan.keys(i).tolist()
        if plan.turn[i] == 0:
            continue
        depth = 0
        while depth < len(keys) and keys[depth] in held:
            depth += 1
        started_warm += depth * 16 * 2 > plan.prompt_tokens[i]
        assert depth <= plan.prompt_tokens[i] // 16, "the store holds no page of an unplanned turn"
        used.update(keys[:depth])
    assert used == held and started_warm > 10
    assert len(plan_of(start_within=[0, 0]).warm_keys()) == 0


def test_namespaces():
    plan = plan_of(namespaces=3, requests=2000)
    assert set(plan.namespace.tolist()) == {0, 1, 2}
    spaces = {}
    for session, space in zip(plan.session.tolist(), plan.namespace.tolist(), strict=True):
        assert spaces.setdefault(session, space) == space


def test_bad_rows_are_counted_in_the_plan(tmp_path):
    path = tmp_path / "trace.jsonl"
    path.write_text((FIXTURES / "mooncake.jsonl").read_text() + '{"timestamp": 9000}\n')
    with pytest.raises(TraceError):
        plan_of(path, loop="open")
    plan = plan_of(path, loop="open", on_bad_row="skip")
    assert plan.rows_skipped == 1 and plan.n == 7


@pytest.mark.parametrize(
    "change",
    [
        {"loop": "half"}, {"requests": 0}, {"duration_s": 0}, {"duration_s": 1e-6},
        {"concurrency": 0}, {"speed": 0}, {"idle_cap_s": -1},
        {"namespaces": 0}, {"cancel_rate": 1.5}, {"start_within": [0.8, 0.2]}, {"trace": "generated:chat"},
        {"on_bad_row": "hide", "trace": str(FIXTURES / "mooncake.jsonl")}, {"ranks": 0},
    ],
)  # fmt: skip
def test_settings_that_cannot_be_planned(change):
    with pytest.raises(WorkloadError) as caught:
        plan_of(**change)
    assert (
        "\n" not in str(caught.value) and next(iter(change)) in str(caught.value) and ":" in str(caught.value)
    )


def test_cancel_codes_are_those_of_the_serving_loop():
    """Written down twice: the workload knows no serving loop, and the loop no workload."""
    from stress.serving import request
    from stress.workload import plan

    codes = [{n: v for n, v in vars(one).items() if n.startswith("CANCEL_")} for one in (plan, request)]
    assert len(codes[0]) == 5
    assert codes[0] == codes[1]


def test_contents_count_plays_beyond_the_trace():
    plan = plan_of(FIXTURES / "mooncake.jsonl", requests=600)
    plays = len(set(plan.session.tolist()))
    contents = plan.contents()
    assert contents["requests_planned"] == plan.n > 7
    assert contents["sessions"] == 4
    assert contents["replays"] == plays - 4 > 0
    assert (contents["rows_skipped"], contents["zero_outputs"]) == (0, plan.zero_outputs)
    generated = plan_of(requests=50).contents()
    assert (generated["requests_planned"], generated["replays"]) == (50, 0)
