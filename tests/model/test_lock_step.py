"""Step plans between whole ranks: what each exchange carries, and lock step, where the gathered plans bind."""

from __future__ import annotations

import pytest

from stress.config import load_config
from stress.payload import REST_AT
from stress.rank import Rank, run_rank
from stress.result import RankSpec
from stress.serving.loop import ServingLoop
from stress.step_plan import PLAN_BYTES, Mode, StepPlan, plan_of
from stress.verdict import make_verdict

SMALL = ("workload.requests=80", "check.require=[]")
LOCK_STEP = ("layout.exchange_ms=0", *SMALL)
DONE_AT = slice(PLAN_BYTES, REST_AT)


def gather(config, change=lambda exchange, rank, heard: heard, arm="patched"):
    """(results, payloads of each exchange) of an arm; `change` may alter what a rank hears at an exchange."""
    ranks = config.layout.ranks
    specs = [
        RankSpec(config=config.to_dict(), arm=arm, rank=rank, ranks=ranks, seed=config.seed)
        for rank in range(ranks)
    ]
    generators = [run_rank(spec, lambda line: None) for spec in specs]
    results, exchanges = [None] * ranks, [[next(generator) for generator in generators]]
    while None in results:
        heard, payloads = exchanges[-1], [b""] * ranks
        for rank, generator in enumerate(generators):
            if results[rank] is None:
                try:
                    payloads[rank] = generator.send(change(len(exchanges), rank, heard))
                except StopIteration as end:
                    results[rank] = end.value
        exchanges.append(payloads)
    return results, exchanges[:-1]


def tables_of(exchanges) -> list[list[StepPlan]]:
    return [[plan_of(payload) for payload in payloads] for payloads in exchanges]


@pytest.fixture(scope="module")
def lock_step():
    return gather(load_config("smoke", list(LOCK_STEP)))


def test_a_step_is_one_turn_and_takes_as_long_as_the_slowest_ranks(lock_step):
    """Each rank begins at the latest time of the table before; what it adds is its own turn's cost."""
    _, exchanges = lock_step
    tables, begun_us = tables_of(exchanges), 0
    step_us, per_token = 150_000, 1_000_000 / 16_000
    seen = set()
    for table in tables:
        for plan in table:
            took_us = plan.reached_us - begun_us
            seen.add(plan.mode)
            if plan.mode == Mode.DECODE:
                assert took_us == step_us
            elif plan.mode == Mode.EXTEND:  # a load that is not there yet may hold it up by its 5 ms
                assert 0 < plan.extend_tokens <= 1024
                assert -1 < took_us - step_us - plan.extend_tokens * per_token <= 5_000
            else:
                assert 0 <= took_us <= step_us
        begun_us = max(plan.reached_us for plan in table)
    assert seen == set(Mode)
    reached_us = [max(plan.reached_us for plan in table) for table in tables]
    assert reached_us == sorted(reached_us)


def test_all_clocks_agree_after_each_exchange(monkeypatch):
    begun: dict[int, list[int]] = {0: [], 1: []}
    loops: list[ServingLoop] = []
    run_step = ServingLoop.run_step

    def noted(loop):
        if loop not in loops:
            loops.append(loop)
        begun[loops.index(loop)].append(loop.state.now_us)
        return run_step(loop)

    monkeypatch.setattr(ServingLoop, "run_step", noted)
    results, exchanges = gather(load_config("smoke", list(LOCK_STEP)))
    both = min(len(times) for times in begun.values())
    assert both > 100
    assert begun[0][:both] == begun[1][:both]
    latest_us = [max(plan.reached_us for plan in table) for table in tables_of(exchanges)]
    assert begun[0][1:both] == latest_us[: both - 1]
    assert {result.step_plans.exchanges for result in results} == {len(exchanges)}


def test_a_rank_that_is_done_takes_part_as_idle_until_the_last_is(lock_step):
    results, exchanges = lock_step
    done_at = [
        next(at for at, payloads in enumerate(exchanges) if payloads[rank][DONE_AT] == b"\1")
        for rank in (0, 1)
    ]
    early = done_at.index(min(done_at))
    assert done_at[early] < done_at[1 - early] == len(exchanges) - 1
    after = tables_of(exchanges)[done_at[early] + 1 :]
    assert {table[early][:3] for table in after} == {(Mode.IDLE, 0, 0)}
    result = results[early]
    assert result.step_plans.idle_beside_busy == result.marks["idle_rank"] > 0
    assert result.virtual_us < results[1 - early].virtual_us, "its own work ended when it ended"
    told = result.step_plans
    assert told.exchanges == told.idle + told.extend + told.decode


def test_lock_step_takes_at_least_as_long_and_serves_the_same_requests(lock_step):
    results, _ = lock_step
    free, _ = gather(load_config("smoke", list(SMALL)))
    assert max(result.virtual_us for result in results) >= max(result.virtual_us for result in free)
    assert [result.requests_started for result in results] == [result.requests_started for result in free]
    for result in (*results, *free):
        assert (result.status, result.errors, result.findings) == ("finished", 0, {})
    assert len({result.step_plans.digest for result in results}) == 1


def test_a_rank_without_any_request_is_idle_from_the_first_step():
    """One session on one of two ranks."""
    shape = ("layout.exchange_ms=0", "workload.requests=1", "workload.concurrency=1", "check.require=[]")
    results, exchanges = gather(load_config("smoke", list(shape)))
    (idle,) = [rank for rank in (0, 1) if results[rank].requests_started == 0]
    tables = tables_of(exchanges)
    assert {table[idle].mode for table in tables} == {Mode.IDLE}
    busy = sum(table[1 - idle].has_tokens for table in tables)
    assert results[idle].step_plans.idle_beside_busy == results[idle].marks["idle_rank"] == busy > 1
    assert results[idle].step_plans.digest == results[1 - idle].step_plans.digest


def test_after_a_loss_the_survivor_goes_on_alone():
    lost_at = 20

    def alone(exchange, rank, heard):
        kept = [payload if peer == rank else b"" for peer, payload in enumerate(heard)]
        return kept if exchange >= lost_at else heard

    results, exchanges = gather(load_config("smoke", list(LOCK_STEP)), alone)
    assert [result.status for result in results] == ["finished", "finished"]
    tables = tables_of(exchanges)[lost_at:]
    apart = [table for table in tables if None not in table and table[0].reached_us != table[1].reached_us]
    assert apart, "nobody waits for the other any more"
    assert results[0].step_plans.digest != results[1].step_plans.digest


def test_an_asserted_rank_stays_where_it_ended(monkeypatch):
    """Rank 1 fails early; rank 0 goes on, and the virtual time of the failure is not that of the run's end."""
    work = Rank._work

    def failing(rank, boundary_us):
        if rank.spec.rank == 1 and rank.plans.exchanges == 5:
            raise AssertionError("the target's own")
        return work(rank, boundary_us)

    def caught(rank, boundary_us):
        try:
            return failing(rank, boundary_us)
        except AssertionError:
            rank.evidence.status = "asserted"
            return True

    monkeypatch.setattr(Rank, "_work", caught)
    results, exchanges = gather(load_config("smoke", list(LOCK_STEP)))
    ended_us = max(plan.reached_us for plan in tables_of(exchanges)[4])
    assert (results[1].status, results[1].virtual_us) == ("asserted", ended_us)
    assert results[0].status == "finished"
    assert len({result.step_plans.digest for result in results}) == 1


def test_a_rank_that_hears_something_else_makes_the_arm_unknown():
    """The control: one int of one table, changed for rank 1 alone, and what the ranks decide is the same."""

    def other(exchange, rank, heard):
        if (exchange, rank) != (2, 1):
            return heard
        plan = plan_of(heard[0])
        return [
            plan._replace(extend_tokens=plan.extend_tokens + 1).to_bytes() + heard[0][PLAN_BYTES:],
            heard[1],
        ]

    config = load_config("smoke", list(SMALL))
    results, _ = gather(config)
    assert (
        make_verdict(config, {"patched": results}, arms=["patched"], launcher="inline")["verdict"] == "pass"
    )
    misheard, _ = gather(config, other)
    assert [result.digest for result in misheard] == [result.digest for result in results]
    document = make_verdict(config, {"patched": misheard}, arms=["patched"], launcher="inline")
    assert document["verdict"] == "unknown"
    assert document["reasons"] == [
        "Arm patched: not all ranks gathered the same step plans, only these among themselves: rank 0; rank 1."
    ]
