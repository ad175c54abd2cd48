"""Whole runs in the smallest pools that are taken end clean: what is refused below them is refused rightly."""

import json
from pathlib import Path

import pytest

from stress.cli import main
from stress.config import load_config
from stress.config_pools import full_pages_needed, swa_pages_needed
from stress.workload.plan import plan_of

CASES = [
    [],
    ["serving.chunk_tokens=64"],
    ["serving.chunk_tokens=64", "pool.unified_kv=false", "pool.window_tokens=1000"],
    ["pool.page_size=16", "serving.chunk_tokens=100", "pool.window_tokens=7", "serving.draft_tokens=64"],
    ["pool.page_size=256", "pool.window_tokens=1", "serving.draft_tokens=0", "serving.max_running=1"],
]


def smallest(overrides):
    """(FULL, SWA) pages that are the fewest taken for the workload."""
    config = load_config("smoke", [*overrides, "pool.full_pages=100000", "pool.swa_pages=100000"])
    pool, serving = config.pool, config.serving
    plan = plan_of(config)
    lengths = zip(plan.prompt_tokens.tolist(), plan.output_tokens.tolist(), strict=True)
    return max(full_pages_needed(pool, serving, *tokens) for tokens in lengths), swa_pages_needed(
        pool, serving
    )


@pytest.mark.parametrize("overrides", CASES, ids=" ".join)
def test_the_smallest_pools_that_are_taken_end_clean(overrides, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    overrides = [*overrides, "workload.requests=40", "check.require=[]"]
    full, swa = smallest(overrides)

    def run(full_pages, swa_pages, out):
        sets = [*overrides, f"pool.full_pages={full_pages}", f"pool.swa_pages={swa_pages}"]
        given = [word for override in sets for word in ("--set", override)]
        return main(["run", "smoke", "--arm", "patched", "--launcher", "inline", "--out", out, *given])

    assert run(full, swa, "run") == 0
    totals = json.loads(Path("run/verdict.json").read_text())["arms"]["patched"]["totals"]
    assert totals["requests_started"] == totals["requests_finished"] + totals["requests_cancelled"] == 40
    capsys.readouterr()
    assert run(full - 1, swa, "less") == 2
    assert f"give at least {full}" in capsys.readouterr().err
    assert run(full, swa - 1, "less") == 2
    assert f"give at least {swa}" in capsys.readouterr().err
    assert not Path("less").exists()
