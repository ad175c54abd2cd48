"""Swarm: a seed draws one run, always the same; what it draws can run, and is clean on the correct reference."""

from __future__ import annotations

import pytest

from stress.config import ConfigError, load_config
from stress.matrix.cell import run_cell
from stress.nightly_matrix import load_matrix
from stress.swarm import swarm_config

SMALL = ("layout.tp_size=1", "layout.dp_size=1", "check.require=[]", "workload.requests=60")


def drawn(seed: int):
    return swarm_config(load_config("smoke", list(SMALL), seed))


def test_a_seed_draws_one_run_and_the_overrides_give_it_back() -> None:
    config, overrides = drawn(7)
    assert drawn(7) == (config, overrides)
    assert load_config("smoke", [*SMALL, *overrides], 7) == config
    assert drawn(8)[1] != overrides


@pytest.mark.parametrize(
    ("override", "kept"),
    [
        ("pool.page_size=64", {"page_size": 64}),
        ("pool.full_pages=9999", {"full_pages": 9999}),
        ("pool={swa_ring=true, window_tokens=100}", {"swa_ring": True, "window_tokens": 100}),
    ],
)
def test_what_is_set_is_not_drawn_and_the_rest_is(override: str, kept: dict) -> None:
    for seed in range(1, 9):
        overrides = [*SMALL, override]
        config, others = swarm_config(load_config("smoke", overrides, seed), overrides)
        assert {key: getattr(config.pool, key) for key in kept} == kept
        assert not any(one.startswith(override.partition("=")[0] + "=") for one in others)
        assert config.serving.max_running == drawn(seed)[0].serving.max_running


def test_no_mark_is_required_unless_one_is_asked_for() -> None:
    config, overrides = swarm_config(load_config("smoke", ["workload.requests=60"], 3))
    assert (config.check.require, "check.require=[]" in overrides) == ([], True)
    asked = ['check.require=["retracted"]']
    assert swarm_config(load_config("smoke", asked, 3), asked)[0].check.require == ["retracted"]


def test_many_seeds_draw_each_feature_on_and_off() -> None:
    configs = [drawn(seed)[0] for seed in range(1, 41)]
    for table, key in (
        ("pool", "unified_kv"),
        ("pool", "swa_ring"),
        ("linker", "enabled"),
        ("linker", "warm"),
        ("linker", "store"),
    ):
        assert len({getattr(getattr(config, table), key) for config in configs}) == 2, key
    for table, key in (
        ("pool", "page_size"),
        ("pool", "window_tokens"),
        ("serving", "draft_tokens"),
        ("workload", "fork_rate"),
        ("workload", "cancel_rate"),
        ("workload", "namespaces"),
    ):
        assert len({getattr(getattr(config, table), key) for config in configs}) >= 3, key
    faulty = {fault.kind for config in configs for fault in config.linker.faults}
    assert faulty >= {"failed-load", "short-load", "failed-offload", "late"}
    assert {config.pool.window_tokens % 16 for config in configs} > {0}
    assert min(config.pool.swa_pages for config in configs) < 20


@pytest.mark.parametrize("seed", range(1, 9))
def test_what_is_drawn_runs_clean(seed: int) -> None:
    cell = run_cell(drawn(seed)[0], "patched")
    assert (cell.fired, cell.statuses) == ([], ["finished"])


def test_a_nightly_draws_by_seed_and_says_the_command() -> None:
    matrix = load_matrix("swarm")
    assert (len(matrix.seeds), matrix.seeds[0], matrix.seeds[-1]) == (200, 1, 200)
    (case,) = matrix.cases
    assert case.swarm
    assert case.resolve(3).pool != case.resolve(4).pool


@pytest.mark.parametrize("seeds", ["", "5", "9-1", "a-b", "1-99999999"])
def test_what_is_no_range_of_seeds_is_refused(seeds: str, tmp_path) -> None:
    path = tmp_path / "night.toml"
    path.write_text(
        f'[nightly]\nseeds = "{seeds}"\n[[nightly.run]]\nconfig = "smoke"\n'
        '[nightly.canary]\nconfig = "smoke"\narm = "unpatched"\n'
    )
    with pytest.raises(ConfigError, match=r"nightly\.seeds"):
        load_matrix(str(path))
