"""Page keys against a plain expansion of the ids: equal keys <=> equal prefix, for every page size."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from stress.workload import WorkloadError, build_plan

FIXTURES = Path(__file__).parents[1] / "fixtures"
SERVING = SimpleNamespace(step_base_ms=160, prefill_tokens_per_s=16000, accept_mean=2.49)


def plan_of(trace, page_size=64, ranks=2, seed=1, **changes):
    settings = dict(
        trace=str(trace), requests=200, duration_s=3600, loop="closed", concurrency=3, idle_cap_s=30,
        start_within=[0.25, 0.75], speed=1.0, cancel_rate=0.05, fork_rate=0.0, namespaces=1,
        on_bad_row="fail",
    )  # fmt: skip
    workload = SimpleNamespace(**{**settings, **changes})
    return build_plan(workload, SERVING, seed=seed, page_size=page_size, ranks=ranks)


def expand(sessions, row, stream):
    """Block ids of a row, from its stream's first row."""
    ids = []
    for at in range(int(sessions.stream_row[stream]), row + 1):
        runs = range(int(sessions.run_row[at]), int(sessions.run_row[at + 1]))
        new = [int(sessions.run_start[r]) + k for r in runs for k in range(int(sessions.run_count[r]))]
        ids = ids[: int(sessions.keep[at])] + new
    return ids


def names(plan, i):
    """What each page of request i holds, by the rules of the module, expanded without any hashing."""
    s, page = plan.page_keys.sessions, plan.page_size
    block, row, stream = s.block_tokens, int(plan.row[i]), int(plan.stream[i])
    play = -1 if s.shared_ids else int(plan.session[i])
    ns, prompt = int(plan.namespace[i]), int(s.input[row])
    total = prompt + int(s.output[row])
    root = stream in s.session_stream.tolist()

    def page_name(ids, p):
        upto = -(-(p + 1) * page // block)
        return ("text", ns, play, tuple(ids[:upto]), (p * page % block) // page if page < block else 0)

    ids = expand(s, row, stream)
    full_blocks, named = prompt // block, min(prompt, len(ids) * block)
    more, more_named = None, 0
    if row + 1 < s.stream_row[stream + 1] and s.keep[row + 1] >= full_blocks and s.input[row + 1] >= total:
        more = expand(s, row + 1, stream)
        more_named, named = min(int(s.input[row + 1]), len(more) * block), min(named, full_blocks * block)
    out = []
    for p in range(-(-total // page)):
        end = (p + 1) * page
        if end <= total and end <= int(s.stream_head[stream]) // page * page:
            out.append(("head", ns, root, p))
        elif end <= named:
            out.append(page_name(ids, p))
        elif end <= total and more is not None and end <= more_named:
            out.append(page_name(more, p))
        else:
            out.append(("own", int(plan.session[i]), row, p))
    return out


@pytest.mark.parametrize("trace", ["weka_packed.jsonl", "mooncake.jsonl", "generated:agentic-small"])
@pytest.mark.parametrize("page_size", [16, 64, 256, 128])
@pytest.mark.parametrize("namespaces", [1, 3])
def test_equal_keys_are_equal_prefixes(trace, page_size, namespaces):
    trace = trace if trace.startswith("generated") else FIXTURES / trace
    plan = plan_of(trace, page_size, namespaces=namespaces, requests=120)
    by_key, by_name, shared = {}, {}, 0
    for i in range(plan.n):
        keys, expected = plan.keys(i), names(plan, i)
        assert keys.dtype == np.int64 and len(keys) == len(expected) and (keys > 0).all()
        for key, name in zip(keys.tolist(), expected, strict=True):
            shared += key in by_key
            assert by_key.setdefault(key, name) == name
            assert by_name.setdefault(name, key) == key
    assert shared > 20, "the trace shares pages"


@pytest.mark.parametrize("trace", ["weka_packed.jsonl", "mooncake.jsonl", "generated:agentic-small"])
@pytest.mark.parametrize("page_size", [1, 256])
def test_keys_are_chained(trace, page_size):
    """A key has one position and one key before it: what a radix tree builds on."""
    trace = trace if trace.startswith("generated") else FIXTURES / trace
    plan = plan_of(trace, page_size, requests=60, namespaces=2)
    before = {}
    for i in range(plan.n):
        keys = plan.keys(i).tolist()
        for p, key in enumerate(keys):
            assert before.setdefault(key, (p, keys[p - 1] if p else 0)) == (p, keys[p - 1] if p else 0)
    spaces = [set() for _ in range(2)]
    for i in range(plan.n):
        spaces[plan.namespace[i]].update(plan.keys(i).tolist())
    assert spaces[0] and spaces[1] and not spaces[0] & spaces[1]


def test_the_tail_page_is_private():
    plan = plan_of("generated:agentic-small", 256, requests=150)
    total = plan.prompt_tokens + plan.output_tokens
    tails = [int(plan.keys(i)[-1]) for i in range(plan.n) if total[i] % 256]
    full = {int(k) for i in range(plan.n) for k in plan.keys(i)[: total[i] // 256]}
    assert len(tails) > 100 and len(set(tails)) == len(tails) and not set(tails) & full


def test_any_order_of_calls_gives_the_same_keys():
    plan, other = (
        plan_of("generated:agentic-small", requests=150),
        plan_of("generated:agentic-small", requests=150),
    )
    forward = [plan.keys(i) for i in range(plan.n)]
    order = np.random.default_rng(0).permutation(plan.n)
    for i in order.tolist():
        assert np.array_equal(other.keys(i), forward[i])


def test_replays_share_the_head_alone():
    plan = plan_of(FIXTURES / "weka_packed.jsonl", 64, requests=60, start_within=[0, 0], concurrency=1)
    roots = [i for i in range(plan.n) if plan.turn[i] == 0 and plan.prompt_tokens[i] == 2600]
    assert len(roots) >= 2, "the trace is replayed"
    a, b = plan.keys(roots[0]), plan.keys(roots[1])
    assert np.array_equal(a == b, np.arange(len(a)) < 548 // 64)


def test_sub_agents_have_a_head_of_their_own():
    plan = plan_of(FIXTURES / "weka_packed.jsonl", 64, requests=9, start_within=[0, 0], concurrency=1)
    agents = [i for i in range(plan.n) if plan.prompt_tokens[i] == 700 and plan.turn[i] >= 5]
    root = next(i for i in range(plan.n) if plan.prompt_tokens[i] == 2600)
    assert len(agents) == 2
    a, b = (plan.keys(i) for i in agents)
    assert np.array_equal(a == b, np.arange(len(a)) < 576 // 64)
    assert not set(a.tolist()) & set(plan.keys(root).tolist())


@pytest.mark.parametrize("page_size", [3, 16, 64, 256])
def test_tokens_name_their_page(page_size):
    from stress.workload.tokens import page_tokens

    keys = np.array([2, 4, 2**62 + 5, 2**63 - 1, 1 << 21, 1 << 42, 3], dtype=np.int64)
    pages = [
        tuple(page_tokens(keys, page_size, p * page_size, (p + 1) * page_size)) for p in range(len(keys))
    ]
    assert len(set(pages)) == len(keys)
    part = page_tokens(keys, page_size, page_size - 1, page_size + 2)
    assert part.tolist() == [pages[0][-1], *pages[1][:2]]
    assert page_tokens(keys, page_size, 5, 5).shape == (0,)
    assert all(0 < t < 2**31 for page in pages for t in page)
    with pytest.raises(IndexError):
        page_tokens(keys, page_size, 0, len(keys) * page_size + 1)


def test_tokens_of_a_plan_agree_with_its_keys():
    plan = plan_of("generated:agentic-small", 16, requests=40)
    by_key, by_page = {}, {}
    for i in range(plan.n):
        keys = plan.keys(i)
        tokens = plan.tokens(i, 0, len(keys) * 16).reshape(-1, 16)
        for key, page in zip(keys.tolist(), map(tuple, tokens.tolist()), strict=True):
            assert by_key.setdefault(key, page) == page and by_page.setdefault(page, key) == key


@pytest.mark.parametrize("page_size", [3, 48, 96, 100, 0, -64])
def test_other_page_sizes_are_refused(page_size):
    with pytest.raises(WorkloadError, match="divisor or a multiple of 64"):
        plan_of("generated:agentic-small", page_size)
