"""Whole runs of config `lmcache` on the release: clean as it is, and with the client's fault found where it acts."""

import json

import pytest

from stress.cli import main

pytestmark = pytest.mark.slow


@pytest.fixture
def run(lmcache_tree, capsys, tmp_path):
    """Runs `lmcache` with more arguments; gives the arm's document. The rank is a process of its own."""

    def run_lmcache(*arguments: str) -> dict:
        out = str(tmp_path / "run")
        main(["run", "lmcache", "--launcher", "local", "--json", "--out", out, *arguments])
        return json.loads(capsys.readouterr().out)["arms"]["lmcache"]

    return run_lmcache


def test_the_release_as_it_is_is_clean(run):
    arm = run("--set", "check.level=3")
    assert (arm["verdict"], arm["totals"]["findings"], arm["totals"]["errors"]) == ("pass", 0, 0)
    (rank,) = arm["ranks"]
    assert rank["requests_finished"] + rank["requests_cancelled"] == rank["requests_started"] == 400
    assert {"I1", "I2", "I3", "I7", "I12", "I13", "I14", "I16", "I20"} <= set(arm["rules_watched"])


def test_a_page_given_up_twice_is_i3_at_that_operation_and_i2_later(run):
    (rank,) = run("--fault", "F25", "--set", "workload.requests=100")["ranks"]
    first, acted = rank["first_finding"], rank["faults_reached"]["F25"]
    assert (first["rule"], first["operation"], first["noticed"]) == ("I3", acted, acted)
    assert rank["findings"]["I2"] and rank["status"] == "finished"


def test_the_first_page_with_two_owners_names_both(run):
    (rank,) = run("--fault", "F25", "--set", 'check.rules=["I2"]', "--set", "workload.requests=100")["ranks"]
    first = rank["first_finding"]
    assert first["rule"] == "I2" and first["operation"] > rank["faults_reached"]["F25"]
    assert " while on loan to request " in first["message"] and " lent to request " in first["message"]
    assert sum("returned pages page" in line for line in first["history"]) >= 2


def test_a_loaded_pool_is_clean_too(run):
    """Nine tenths of the pages are on loan from the first operation to the last."""
    arm = run(
        "--set", "pool.full_pages=640", "--set", "workload.ballast=0.9", "--set", "workload.requests=100"
    )
    assert (arm["verdict"], arm["totals"]["findings"]) == ("pass", 0)


def test_two_ranks_of_a_group_decide_alike(run):
    arm = run("--set", "layout.tp_size=2", "--set", "layout.exchange_ms=0", "--set", "workload.requests=60")
    assert arm["totals"]["findings"] == 0
    assert len({rank["digest"] for rank in arm["ranks"]}) == 1
