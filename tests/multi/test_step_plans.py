"""Step plans over a group of their own, as on devices: equal digests, refusals, and a peer lost halfway an exchange."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from stress.config import load_config
from stress.launch.contract import LaunchError, RankOutcome
from stress.launch.inline import InlineLauncher
from stress.launch.local import LocalLauncher
from stress.result import RankSpec

pytestmark = pytest.mark.multi

LIMIT_S = 60
SHAPE = ("layout.exchange_ms=1000", "workload.requests=60", "check.require=[]")


@pytest.fixture(autouse=True)
def ranks_on_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parent))


def outcomes_of(launcher, entry: str, *overrides: str, wanted: int = 2) -> dict[int, RankOutcome]:
    """The first `wanted` outcomes of two ranks of smoke."""
    config = load_config("smoke", [*SHAPE, *overrides])
    specs = [
        RankSpec(config=config.to_dict(), arm="patched", rank=rank, ranks=2, seed=1) for rank in range(2)
    ]
    outcomes: dict[int, RankOutcome] = {}
    deadline_s = time.monotonic() + LIMIT_S
    try:
        launcher.start(specs, entry)
        while len(outcomes) < wanted and time.monotonic() < deadline_s:
            outcomes |= {outcome.rank: outcome for outcome in launcher.poll(1.0)}
    finally:
        launcher.close()
    assert len(outcomes) == wanted
    return outcomes


@pytest.fixture(scope="module")
def inline():
    return outcomes_of(InlineLauncher(), "stress.rank:run_rank")


def test_plans_of_a_group_of_their_own_are_those_of_one_process(inline) -> None:
    local = outcomes_of(LocalLauncher(), "plan_ranks:apart", "layout.backend=nccl")
    for rank, outcome in local.items():
        assert outcome.result is not None, outcome.lost
        here, there = inline[rank].result, outcome.result
        assert (there.status, there.digest_partial, there.digest) == ("finished", False, here.digest)
        assert there.step_plans.digest == here.step_plans.digest
        assert (here.step_plans.over, there.step_plans.over) == ("", "nccl")


def test_ranks_on_one_device_stay_with_gloo_and_are_refused_nccl(inline) -> None:
    local = outcomes_of(LocalLauncher(), "plan_ranks:shared")
    for rank, outcome in local.items():
        assert outcome.result.step_plans.over == "gloo"
        assert outcome.result.step_plans.digest == inline[rank].result.step_plans.digest
    with pytest.raises(
        LaunchError, match="nccl, but ranks 0 and 1 share a device, which NCCL refuses; use --set"
    ):
        outcomes_of(LocalLauncher(), "plan_ranks:shared", "layout.backend=nccl")


def test_without_a_device_nccl_is_refused_by_each_launcher_in_one_line() -> None:
    for launcher in (LocalLauncher(), InlineLauncher()):
        with pytest.raises(LaunchError, match=r"layout.backend is nccl, but .*; use --") as refused:
            outcomes_of(launcher, "stress.rank:run_rank", "layout.backend=nccl")
        assert "\n" not in str(refused.value)


def test_an_nccl_that_fails_on_one_rank_leaves_all_with_gloo(inline) -> None:
    local = outcomes_of(LocalLauncher(), "plan_ranks:unable")
    assert {outcome.result.step_plans.over for outcome in local.values()} == {"gloo"}
    assert [local[rank].result.digest for rank in (0, 1)] == [inline[rank].result.digest for rank in (0, 1)]
    with pytest.raises(
        LaunchError, match=r"nccl, but rank 0: no step plans|nccl, but rank 1: NCCL error: no network"
    ):
        outcomes_of(LocalLauncher(), "plan_ranks:unable", "layout.backend=nccl")


def test_a_rank_killed_before_the_gather_costs_nobody_elses_result() -> None:
    """The event never comes; the launcher's word that the peer is lost ends the wait, long before its deadline."""
    begun_s = time.monotonic()
    outcomes = outcomes_of(LocalLauncher(), "plan_ranks:killed", "layout.backend=nccl")
    assert time.monotonic() - begun_s < 30
    assert outcomes[1].lost == "killed by SIGKILL"
    result = outcomes[0].result
    assert (result.status, result.digest_partial) == ("finished", True)


def test_a_rank_that_stands_still_before_the_gather_is_waited_for_to_the_deadline() -> None:
    outcomes = outcomes_of(LocalLauncher(), "plan_ranks:stopped", "layout.backend=nccl", wanted=1)
    result = outcomes[0].result
    assert (result.status, result.digest_partial) == ("finished", True)
