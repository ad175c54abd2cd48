"""The benchmarks whose tables stand in docs/checks.md still measure what they say, at a size that takes a second."""

from __future__ import annotations

from pathlib import Path

import pytest

from stress.engine.reference.engine import ReferenceEngine

BENCHMARKS = Path(__file__).parents[1] / "benchmark"
OBSERVES = ReferenceEngine.observes | {"offsets"}


@pytest.fixture(autouse=True)
def benchmarks_on_path(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))


@pytest.mark.parametrize("on_finding", ["count", "stop"])
def test_ledgers_are_shown_again_all_that_the_first_one_saw(on_finding):
    """With "count" events come together, with "stop" one by one: `Kept` must see both."""
    from check_cost import run_s
    from rule_cost import Kept

    with Kept() as kept:
        _, operations = run_s(20, ("check.level=2", f"check.on_finding={on_finding}"))
    first = {name: (pool.lends, pool.lent) for name, pool in kept.ledger.shadow.pools.items()}
    assert operations > 300
    assert all(lends > 50 for lends, _ in first.values())
    for short_cuts in (True, False):
        again, took_s = kept.show(None, OBSERVES, short_cuts)
        assert {name: (pool.lends, pool.lent) for name, pool in again.shadow.pools.items()} == first
        assert took_s > 0


def test_a_ledger_without_a_rule_does_not_have_it():
    from check_cost import run_s
    from rule_cost import Kept

    with Kept() as kept:
        run_s(20, ("check.level=2",))
    assert "I6" in kept.show(None, OBSERVES, True)[0].rules_watched
    assert "I6" not in kept.show(["I1", "I2"], OBSERVES, True)[0].rules_watched


def test_the_bare_allocator_runs_at_each_level():
    from bare_cost import bare_s

    assert all(bare_s(level, 2, 2) > 0 for level in (0, 1, 2, 3))
