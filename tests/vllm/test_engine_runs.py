"""Whole runs on real vLLM: what 0.20.2 gets wrong is found where it happens, and later releases are clean.

Each arm's ranks are processes of their own, since a process imports one tree.
"""

import json

import pytest

from stress.cli import main

pytestmark = pytest.mark.slow
OLD, NEWER = "0.20.2", ("0.28.0", "0.33.0")


@pytest.fixture
def run(capsys, tmp_path, vllm_tree):
    """Runs one arm of a config on a release; gives the arm of the verdict document."""

    def run_arm(config: str, arm: str, version: str, *overrides: str) -> dict:
        vllm_tree(version)
        arguments = [
            "run",
            config,
            "--arm",
            arm,
            "--launcher",
            "local",
            "--json",
            "--out",
            str(tmp_path / "run"),
        ]
        for override in (f"arms.{arm}.target=vllm=={version}", *overrides):
            arguments += ["--set", override]
        main(arguments)
        return json.loads(capsys.readouterr().out)["arms"][arm]

    return run_arm


def is_clean(arm: dict) -> bool:
    totals = arm["totals"]
    served = totals["requests_finished"] + totals["requests_cancelled"] == totals["requests_started"] > 0
    return served and (totals["asserts"], totals["errors"], totals["findings"]) == (0, 0, 0)


def test_a_store_that_has_one_page_twice_is_found_long_before_the_pool_asserts(run):
    """vllm#42571: the page is then given up twice, comes back twice, and the pool's links are broken."""
    (rank,) = run("vllm-offload", "old", OLD)["ranks"]
    first = rank["first_finding"]
    assert (first["rule"], first["pool"], first["operation"]) == ("I15", "blocks", 166)
    assert first["message"] == "offload 25 (admit of request 7, offload scan) has page 21 twice"
    assert rank["first_assert"]["operation"] > 1000
    assert {"I3", "I15"} <= set(rank["findings"])


def test_a_page_in_two_tables_of_one_request_is_found_where_it_is_admitted(run):
    """vllm#33775: the pool's own accounts are right all the while."""
    (rank,) = run("vllm-offload", "old", OLD, "seed=31", "workload.requests=150")["ranks"]
    first = rank["first_finding"]
    assert (first["rule"], first["operation"]) == ("I2", 134)
    assert " of full and place " in first["message"] and "after admit of request" in first["message"]
    assert {"I2", "I16"} <= set(rank["findings"])


@pytest.mark.parametrize("version", NEWER)
@pytest.mark.parametrize("seed", [1, 31])
def test_later_releases_are_clean_on_the_same_requests(run, version, seed):
    assert is_clean(run("vllm-offload", "new", version, f"seed={seed}", "workload.requests=150"))


def test_a_store_that_does_not_wait_for_the_pass_keeps_what_was_there_before(run):
    """vllm#45704: a page that was given again in this step is stored under its new hash before it is written."""
    (rank,) = run("vllm-offload", "new", NEWER[-1], "linker.stores_wait=false")["ranks"]
    assert rank["first_finding"]["rule"] == "I16" and set(rank["findings"]) == {"I16"}


def test_without_the_offload_the_old_release_is_clean_and_two_ranks_serve_smoke(run):
    arm = run("smoke", "patched", OLD, "linker.enabled=false", "workload.requests=120")
    assert is_clean(arm) and len(arm["ranks"]) == 2
    watched = set(arm["rules_watched"])
    assert {"I1", "I2", "I3", "I7", "I9", "I12", "I13", "I16", "I17", "I20"} <= watched


@pytest.mark.parametrize(
    "groups",
    [
        '["full"]',
        '["full:128", "sliding"]',
        '["full", "sliding", "sliding:64:64"]',
        '["full", "chunked:64:256"]',
    ],
)
def test_other_groups_in_a_pool_that_is_short_are_clean_with_every_slot_compared(run, groups):
    small = (
        "pool.full_pages=220",
        "workload.requests=60",
        "check.level=3",
        "layout.tp_size=1",
        "layout.dp_size=1",
    )
    arm = run("smoke", "patched", OLD, "linker.enabled=false", f"pool.groups={groups}", *small)
    assert is_clean(arm)


def test_two_runs_of_one_seed_decide_alike_evict_and_move_windows(run, tmp_path):
    digests = set()
    for number in range(2):
        overrides = "workload.requests=60", "linker.enabled=true", f"name=run{number}"
        arm = run("smoke", "patched", OLD, *overrides, "pool.full_pages=220")
        digests.add(tuple(rank["digest"] for rank in arm["ranks"]))
        (tmp_path / "run").rename(tmp_path / f"run{number}")
    assert len(digests) == 1
    reached = json.loads((tmp_path / "run0" / "verdict.json").read_text())["coverage"]["reached"]
    assert reached["full_evicted"] > 100 and reached["swa_released_out_of_window"] > 100
