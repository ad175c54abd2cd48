"""Transfers that fail as `linker.faults` says: correct engines stay clean, and what did not come is computed."""

from __future__ import annotations

import numpy as np
import pytest
from rank_driver import run_arm

from linker.faulty_linker import FaultyLinker
from stress.config import load_config
from stress.engine.contract import RequestSpec, Warm
from stress.engine.reference import build_reference
from stress.engine.reference.habits import Habits

FEW = ("workload.requests=60", "check.require=[]", "layout.tp_size=1", "layout.dp_size=1")
FAULTS = {
    "late": '{kind="late",after=2,delay_ms=2500}',
    "short": '{kind="short",after=2}',
    "failed": '{kind="failed",after=2}',
    "lost": '{kind="lost",after=2,delay_ms=2500}',
    "cancelled": '{kind="cancelled",after=2}',
}
PAGE = 64
KEYS = np.arange(1, 21)  # what the store holds


@pytest.mark.parametrize(("kind", "base"), [*((kind, "smoke") for kind in FAULTS), ("short", "linker-swa")])
def test_a_run_whose_transfers_fail_is_clean(kind: str, base: str) -> None:
    arm = "patched" if base == "smoke" else "reference"
    (result,), _ = run_arm(arm, *FEW, f"linker.faults=[{FAULTS[kind]}]", config=base)
    assert (result.status, result.errors, result.findings) == ("finished", 0, {}), result.first_finding
    assert {"I15", "I17", "I20"} <= set(result.rules_watched)
    assert result.requests_finished + result.requests_cancelled == result.requests_started == 60
    assert (result.marks.get("load_failed", 0) > 0) == (kind != "late")
    assert (result.marks.get("offload_failed", 0) > 0) == (kind != "late")


def test_transfer_faults_are_the_same_each_time_and_those_of_their_ranks_alone() -> None:
    two = ("workload.requests=60", "check.require=[]")
    fault = 'linker.faults=[{kind="failed-load",ranks=[1]}]'
    once, _ = run_arm("patched", *two, fault)
    again, _ = run_arm("patched", *two, fault)
    assert [result.digest for result in once] == [result.digest for result in again]
    assert [result.marks.get("load_failed", 0) > 0 for result in once] == [False, True]


def test_an_offload_that_is_lost_for_good_is_reported_after_the_drain() -> None:
    (result,), _ = run_arm("patched", *FEW, 'linker.faults=[{kind="lost-offload",after=20,count=1}]')
    assert result.status == "finished"
    assert set(result.findings) == {"I20"}


def engine(fault: str, habits: Habits | None = None):
    overrides = ["pool.full_pages=128", "pool.swa_pages=128", f"linker.faults=[{fault}]"]
    config = load_config("smoke", overrides)
    warm = Warm(lambda own: iter([KEYS]), lambda keys: keys)
    return build_reference(config, config.arms.named["patched"], "cpu", warm, habits)


def opened(target, rid: int, restorable: int | None = None):
    own = np.array([rid * 1000 + page for page in range(2)])
    request = RequestSpec(
        rid=rid,
        namespace=0,
        prompt_tokens=20 * PAGE + 30,
        output_tokens=8,
        keys=np.concatenate([KEYS, own])[:21],
        tokens=lambda lo, hi: np.arange(lo, hi),
        restorable=restorable,
    )
    target.open(request)
    return target.admit(rid, 0)


def test_a_short_load_is_told_with_what_is_valid_of_it_and_asked_for_no_further() -> None:
    target = engine('{kind="short-load",count=1}')
    assert isinstance(target.linker(), FaultyLinker)
    assert opened(target, 1).loaded == 20 * PAGE
    assert target.extend([(1, 20 * PAGE + 30)])
    target.now_us += 1_000_000
    assert target.poll() == 1
    assert target.failed_loads() == [(1, 10 * PAGE)] and target.failed_loads() == []
    target.retract(1)
    target.close(1)
    assert target.counts()["full"][1] == 128
    assert opened(target, 1, restorable=10 * PAGE).loaded == 10 * PAGE


@pytest.mark.parametrize(("fault", "valid"), [("failed-load", 0), ("short-load", 10), ("cancelled-load", 0)])
def test_what_the_tree_had_of_a_load_that_failed_is_hidden_and_others_are_told(
    fault: str, valid: int
) -> None:
    target = engine(f'{{kind="{fault}",count=1}}', Habits(inserts_loads_at_once=True))
    assert opened(target, 1).loaded == 20 * PAGE
    assert opened(target, 2).cached == 20 * PAGE  # it is matched while it is under way
    assert target.extend([(1, 20 * PAGE + 30), (2, 20 * PAGE + 30)])
    target.now_us += 1_000_000
    assert target.poll() == 1
    assert target.failed_loads() == [(1, valid * PAGE), (2, valid * PAGE)]
    for rid in (2, 1):
        target.retract(rid)
        target.close(rid)
    assert target.memory.cache.check_integrity() == []
    assert opened(target, 3).cached == valid * PAGE
    target.abort(3)
    target.drain()
    assert target.leftover() == (0, 0, 0, 0, 0) and target.counts()["full"][1] == 128


@pytest.mark.parametrize("keeps", [False, True])
def test_a_load_that_is_cancelled_before_it_starts_is_hidden_but_by_the_habit(keeps: bool) -> None:
    habits = Habits(inserts_loads_at_once=True, keeps_cancelled_loads=keeps)
    target = engine('{kind="failed-load",after=5}', habits)
    opened(target, 1)
    target.abort(1)
    assert opened(target, 2).cached == (20 * PAGE if keeps else 0)
    assert target.memory.cache.check_integrity() == []


def test_the_pages_of_a_failed_offload_go_out_again() -> None:
    target = engine('{kind="failed-offload",count=1}')
    keys = np.arange(501, 520)
    for rid in (1, 2):
        target.open(RequestSpec(rid, 0, 10 * PAGE + 5, 8, keys[:11], lambda lo, hi: np.arange(lo, hi)))
        start = target.admit(rid, 0).cached
        assert start == (0 if rid == 1 else 10 * PAGE)
        assert target.extend([(rid, 10 * PAGE + 5)])
        target.commit([(rid, 10 * PAGE + 5 - start)])
        target.results_begin()
        target.finish(rid)
        target.results_end()
        target.now_us += 1_000_000
        target.poll()
        assert target.leftover()[1:4] == (0, 0, 0)
    assert target.marks()["offload_failed"] == 1
    assert target.linker().lookup(keys[:10]) >= 8
