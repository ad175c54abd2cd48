"""Whole ranks on shipped configurations: what each arm must find, and that time's stride changes nothing."""

from __future__ import annotations

import pytest
from rank_driver import run_arm

from allocator.page_pool import PagePool
from stress.check.marks import OF_SCHEDULER
from stress.config import load_config
from stress.matrix.drive import drive
from stress.result import FindingLine, OperationBlock

ONE_RANK = ("layout.tp_size=1", "layout.dp_size=1", "workload.requests=150", "workload.concurrency=12")


@pytest.fixture(scope="module")
def patched():
    return run_arm("patched")


def test_patched_is_clean_and_reaches_every_required_mark(patched):
    results, lines = patched
    for result in results:
        assert result.status == "finished"
        assert (result.asserts, result.errors, result.findings) == (0, 0, {})
        assert result.checker_crashed == ""
        assert result.requests_started == result.requests_finished + result.requests_cancelled
        watched = "I1 I2 I3 I4 I5 I6 I7 I8 I9 I10 I11 I12 I13 I14 I15 I16 I17 I20 I21 I22"
        assert result.rules_watched == watched.split()
    assert sum(result.requests_started for result in results) == 500
    reached = {mark for result in results for mark in result.marks}
    assert set(load_config("smoke").check.require) <= reached
    assert not [line for rank in lines for line in rank if isinstance(line, FindingLine)]


def test_another_run_has_the_same_digest_and_another_seed_another_one():
    def digests(seed):
        return [result.digest for result in run_arm("patched", "workload.requests=100", seed=seed)[0]]

    first = digests(1)
    assert digests(1) == first
    assert digests(2) != first


def test_unpatched_asserts_and_its_first_finding_names_the_load(patched):
    results, lines = run_arm("unpatched")
    for result, emitted in zip(results, lines, strict=True):
        assert result.status == "asserted"
        assert result.first_assert.where == "free_group_end"
        first = result.first_finding
        assert (first.rule, first.pool, first.page) == ("I1", "swa", 0)
        assert first.operation < first.noticed == result.first_assert.operation
        assert first.history[0].endswith("(linker load)")
        assert "free_swa_segment read no peer (checkpoint of request" in "\n".join(first.history)
        assert "returned swa page 0" in first.history[-1]
        kept = [line.finding for line in emitted if isinstance(line, FindingLine)]
        assert kept[0] == first
        recorded = [o for line in emitted if isinstance(line, OperationBlock) for o in line.operations]
        assert [o.number for o in recorded] == list(range(1, result.operations + 1))


def test_without_a_linker_a_window_evicted_tail_is_enough():
    results, _ = run_arm("unpatched", "linker.enabled=false", "pool.swa_pages=800", *ONE_RANK)
    (result,) = results
    first = result.first_finding
    assert (first.rule, first.pool, first.page) == ("I1", "swa", 0)
    assert result.status == "asserted"
    assert not any("linker load" in line for line in first.history)
    # The page lost its SWA side when it left the window; the eviction of its node reads what is no longer there.
    assert any("window" in line for line in first.history)
    assert "cache eviction" in first.history[-2]
    assert run_arm("patched", "linker.enabled=false", *ONE_RANK)[0][0].findings == {}


def test_strides_do_not_change_what_a_rank_does():
    seen = set()
    for exchange_ms in (10_000, 0, 700, 60_000):
        shape = ("linker.store=memory", f"layout.exchange_ms={exchange_ms}", *ONE_RANK)
        result = run_arm("patched", *shape)[0][0]
        seen.add((result.digest, result.operations, result.virtual_us))
    assert len(seen) == 1


@pytest.mark.parametrize(
    "overrides",
    [
        ("pool.unified_kv=false",),
        ("pool.swa_ring=true",),
        ("linker.store=memory", "linker.warm=false"),
        ("serving.draft_tokens=0", "serving.accept_mean=1"),
        ("pool.page_size=16", "pool.full_pages=2000", "pool.swa_pages=400"),
        ("pool.window_tokens=40",),
        ("check.level=3",),
    ],
    ids=" ".join,
)
def test_patched_is_clean_in_other_shapes(overrides):
    result = run_arm("patched", *ONE_RANK, *overrides)[0][0]
    assert (result.status, result.findings, result.errors) == ("finished", {}, 0)
    assert result.requests_finished + result.requests_cancelled == 150
    assert result.checker_crashed == ""


def test_a_request_that_can_never_fit_is_an_error_and_the_rest_goes_on():
    result = run_arm("patched", *ONE_RANK, "pool.full_pages=70", "pool.swa_pages=70")[0][0]
    assert result.errors > 0
    assert result.first_error.kind == "RequestStuck"
    assert "tokens" in result.first_error.message
    assert result.status == "finished"
    ended = result.requests_finished + result.requests_cancelled + result.errors
    assert result.requests_started == ended == 150
    assert result.findings == {}


def test_who_waits_behind_a_request_that_is_given_up_is_asked_again():
    """Request 4 outgrows an idle rank; the one behind it in the queue fits, and was given up with it once."""
    shape = ("pool.full_pages=80", "pool.swa_pages=40", "linker.enabled=false", "workload.requests=60")
    (result,), _ = run_arm("patched", *ONE_RANK[:2], "workload.concurrency=12", *shape, seed=2)
    assert "request 4 has no room to decode beyond 5120 tokens" in result.first_error.message
    assert result.errors == 3  # of those that are longer than the pool; it was 4


def test_stop_on_finding_ends_the_rank_at_its_first_finding():
    result = run_arm("unpatched", "check.on_finding=stop", "check.on_assert=count", *ONE_RANK)[0][0]
    assert result.status == "stopped"
    assert result.first_finding.rule == "I1"
    assert result.operations == result.first_finding.noticed


def test_a_pool_that_lends_a_page_beyond_its_end_is_told_and_no_check_is_lost(monkeypatch):
    """The target fails by itself when it goes on with such a page; whoever watches does not."""
    clear = PagePool.clear

    def off_by_one(self):
        clear(self)
        self.free_pages[20] = self.num_pages + 1

    monkeypatch.setattr(PagePool, "clear", off_by_one)
    (result,) = run_arm("patched", *ONE_RANK)[0]
    assert (result.first_finding.rule, result.first_finding.pool) == ("I1", "full")
    assert result.first_finding.history
    assert (result.status, result.checker_crashed) == ("errored", "")
    assert result.first_error.kind == "IndexError"
    assert "stress/probe" not in result.first_error.traceback.splitlines()[-2]


def test_marks_of_a_scheduler_are_asked_of_no_engine_without_one():
    small = ["layout.tp_size=1", "layout.dp_size=1", "workload.requests=3", "check.require=[]"]
    (result,) = drive(load_config("smoke", small), "patched", lambda _rank: lambda _line: None, None)
    assert set(OF_SCHEDULER) <= set(result.marks_exempt)
