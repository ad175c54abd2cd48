"""Whole runs on real SGLang: shipped releases are clean, the screens' absence is found, also where nothing asserts.

Each arm's ranks are processes of their own, since a process imports one tree. Trees are fetched once into the cache.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil

import pytest

from stress.cli import main
from stress.target import TargetUnavailable, add_target

MISSING = [name for name in ("triton", "pydantic", "packaging") if importlib.util.find_spec(name) is None]
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(MISSING), reason=f"not installed: {', '.join(MISSING)} (kvstress[sglang])"),
]
NO_CURSOR = "sglang==0.5.23+no-cursor"
# Each rank is a process that imports a tree, which takes seconds.
ONE_RANK = ("layout.tp_size=1", "layout.dp_size=1")


@pytest.fixture()
def run(capsys, tmp_path):
    """Runs `smoke` with the arms' targets and overrides; gives the verdict document."""

    def run_smoke(unpatched: str, patched: str | None, *overrides: str, config: str = "smoke"):
        targets = {"unpatched": unpatched, "patched": patched}
        arguments = ["run", config, "--launcher", "local", "--json", "--out", str(tmp_path / "run")]
        for arm, target in targets.items():
            if target is not None:
                try:
                    add_target(target)
                except TargetUnavailable as error:
                    pytest.skip(str(error))
                arguments += ["--arm", arm, "--set", f"arms.{arm}.target={target}"]
        for override in overrides:
            arguments += ["--set", override]
        main(arguments)
        return json.loads(capsys.readouterr().out)

    return run_smoke


def clean(arm: dict) -> bool:
    totals = arm["totals"]
    served = totals["requests_finished"] + totals["requests_cancelled"] == totals["requests_started"] > 0
    return served and (totals["asserts"], totals["errors"], totals["findings"]) == (0, 0, 0)


def test_without_the_cursor_page_0_comes_back_at_the_flush_and_shipped_is_clean(run):
    document = run(NO_CURSOR, "sglang==0.5.23", "workload.requests=150")
    for rank in document["arms"]["unpatched"]["ranks"]:
        first = rank["first_finding"]
        assert (first["rule"], first["pool"], first["page"]) == ("I1", "swa", 0)
        assert first["noticed"] == rank["first_assert"]["operation"]
        assert rank["first_assert"]["where"] == "free_group_end"
        assert first["history"][0].endswith("(linker load)")
        read = [line for line in first["history"] if "free_swa_segment read no peer (checkpoint of" in line]
        assert read, first["history"]
    assert clean(document["arms"]["patched"])
    assert document["divergence"]["operation"] <= 8


def test_the_filter_alone_leaves_counts_that_exceed_the_pool_and_an_older_release_is_clean(run):
    document = run(f"{NO_CURSOR}+filter", "sglang==0.5.20", "workload.requests=100", *ONE_RANK)
    for rank in document["arms"]["unpatched"]["ranks"]:
        assert rank["status"] == "finished"
        # Counts that promise pages which are not there make refusals that they do not explain; and a row whose page
        # gives way to one that a load brought without SWA reads padding in its window.
        assert set(rank["findings"]) <= {"I13", "I14", "I9", "I16"}
        assert (rank["first_finding"]["rule"], rank["first_finding"]["pool"]) == ("I13", "swa")
    assert clean(document["arms"]["patched"])


def test_a_load_whose_request_left_before_it_began_still_comes_where_it_is_in_the_tree_at_once(run):
    """Counts that promise too much (I13) make retractions between a load and its batch, without anything unwritten."""
    document = run(
        "sglang==0.5.21+no-cursor+filter",
        None,
        "workload.requests=100",
        "workload.fork_rate=0",
        "workload.cancel_rate=0.05",
        "serving.chunk_tokens=1024",
        "pool.swa_pages=28",
    )
    arm = document["arms"]["unpatched"]
    for rank in arm["ranks"]:
        assert rank["status"] == "finished"
        assert {"I13", "I14"} <= set(rank["findings"]) <= {"I13", "I14", "I9"}


def test_the_silent_case_on_real_code(run):
    """Loads come back while the pool is loaded: padding returns and no assert, then padding has two owners."""
    document = run(
        NO_CURSOR,
        None,
        "linker.warm=false",
        "pool.full_pages=400",
        "pool.swa_pages=100",
        "serving.max_running=32",
        "workload.concurrency=60",
    )
    ranks = document["arms"]["unpatched"]["ranks"]
    assert [rank["first_finding"]["rule"] for rank in ranks] == ["I1", "I1"]
    silent = [rank for rank in ranks if rank["first_finding"]["noticed"] < rank["first_assert"]["operation"]]
    assert silent
    assert any(rank["findings"].get("I2") for rank in silent)


def test_a_window_wider_than_a_page_in_a_ring_fails_in_0_5_22_and_not_in_0_5_23(capsys, tmp_path):
    for version in ("0.5.22", "0.5.23"):
        try:
            add_target(f"sglang=={version}")
        except TargetUnavailable as error:
            pytest.skip(str(error))
    main(
        ["run", "sglang-ring", "--launcher", "local", "--json", "--out", str(tmp_path / "ring")]
        + ["--set", "workload.requests=120"]
    )
    arms = json.loads(capsys.readouterr().out)["arms"]
    assert [rank["first_assert"]["where"] for rank in arms["v0522"]["ranks"]] == ["checkpoint_into_tree"] * 2
    assert clean(arms["v0523"])


def test_a_window_of_broken_pages_fails_in_0_5_22_and_not_in_0_5_23(run):
    document = run(
        "sglang==0.5.22",
        "sglang==0.5.23",
        "workload.requests=60",
        "pool.window_tokens=100",
        "pool.unified_kv=false",
    )
    ranks = document["arms"]["unpatched"]["ranks"]
    assert "checkpoint_into_tree" in [rank["first_assert"]["where"] for rank in ranks if rank["first_assert"]]
    assert any(rank["findings"].get("I12") for rank in ranks)
    assert clean(document["arms"]["patched"])


def test_a_tree_core_that_can_not_be_loaded_is_no_other_core(capsys, tmp_path):
    """A tree falls back without a word; whoever asked for one core is not shown the other."""
    try:
        root = add_target("sglang==0.5.23")
    except TargetUnavailable as error:
        pytest.skip(str(error))
    tree = tmp_path / "tree"
    shutil.copytree(root / "sglang", tree / "sglang", copy_function=os.symlink)
    for library in tree.rglob("*.so"):
        library.unlink()
    out = ["--json", "--out", str(tmp_path / "run")]
    overrides = [f"arms.patched.target=path:{tree}", "arms.patched.tree_core=rust", "workload.requests=20"]
    settings = [word for override in overrides for word in ("--set", override)]
    assert main(["run", "smoke", "--launcher", "local", "--arm", "patched", *settings, *out]) == 3
    assert "its rust tree core can't be loaded here" in json.loads(capsys.readouterr().out)["reasons"][0]


def test_a_release_without_a_segment_free_is_refused_before_any_rank(capsys, tmp_path):
    try:
        add_target("sglang==0.5.19")
    except TargetUnavailable as error:
        pytest.skip(str(error))
    target = ["--set", "arms.patched.target=sglang==0.5.19", "--out", str(tmp_path / "run")]
    assert main(["run", "smoke", "--launcher", "local", "--arm", "patched", *target]) == 2
    told = capsys.readouterr().err
    assert told == "kvstress: target 'sglang==0.5.19': has no segment free; use SGLang 0.5.20 or later\n"
    assert not (tmp_path / "run").exists()
