"""vLLM's scheduler with its connector: what goes wrong at the workers, what of it is borne, what is found.

Skipped where there is no tree: see conftest. A process imports one tree, so one runs all cases of a release.
"""

import json

import pytest

VERSIONS = ("0.20.2", "0.28.0", "0.33.0")
OLD, *NEWER = VERSIONS
pytestmark = pytest.mark.slow
LATE = ("injections.late_loads=0.5", "injections.late_stores=0.5")
CASES = {
    "late": (*LATE, "injections.failed_loads=0.5"),
    "workers": ("linker.workers=2", *LATE),
    "recompute": ("linker.on_failed_load=recompute", "injections.failed_loads=0.7"),
    "load twice": ("injections.twice_loads=0.7",),
    "store twice": ("injections.twice_stores=0.5",),
    "counted": (
        "linker.workers=2",
        "injections.late_stores=0.5",
        "injections.twice_stores=0.5",
        "check.level=1",
    ),
    "load lost": ("injections.lost_loads=0.5",),
    "store lost": ("injections.lost_stores=0.1", "workload.requests=30"),
    "unordered": ("linker.stores_wait=false",),
}
# One group, for 0.20.2 has two faults with more of them; forks share pages while they are written.
SHORT = (
    *("seed=1", "workload.requests=60", "workload.concurrency=20", "workload.fork_rate=0.5"),
    *('pool.groups=["full"]', "pool.full_pages=54", "serving.max_running=12"),
)
# Of the configuration itself, besides failed loads.
OTHERS = tuple(f"injections.{name}=0.2" for name in ("late_loads", "late_stores", "twice_stores"))
_told: dict = {}


@pytest.fixture
def told(ask):
    """A function of a case and a version: what its run says."""

    def of(case, version):
        if version not in _told:
            cases = {name: [*SHORT, *overrides] for name, overrides in CASES.items()}
            _told[version] = ask("transfers_run.py", version, version, json.dumps(cases))
        return _told[version][case]

    return of


def assert_clean(run):
    assert (run["status"], run["crashed"], run["errors"], run["findings"]) == ("finished", "", 0, {})
    assert run["ended"] == run["started"] == 60


@pytest.mark.parametrize("version", VERSIONS)
def test_late_copies_and_failed_loads_are_borne(told, version):
    run = told("late", version)
    assert_clean(run)
    assert {"I2", "I3", "I9", "I12", "I13", "I15", "I16", "I17", "I20", "I22"} <= set(run["watched"])
    reached = {mark for mark, count in run["marks"].items() if count}
    assert {"load_back", "offloaded", "load_failed", "aborted_storing"} <= reached


@pytest.mark.parametrize("version", VERSIONS)
def test_two_workers_that_tell_each_end_once_are_clean(told, version):
    assert_clean(told("workers", version))


@pytest.mark.parametrize("version", VERSIONS)
def test_what_did_not_come_is_computed_where_that_is_asked_for(told, version):
    run = told("recompute", version)
    assert_clean(run)
    assert run["marks"]["load_failed"]


@pytest.mark.parametrize("version", VERSIONS)
def test_the_end_of_a_load_told_twice_is_asserted_against(told, version):
    run = told("load twice", version)
    assert run["status"] == "asserted"
    assert run["assert"][:2] == [run["operations"], "update_from_output"]


def test_the_end_of_a_store_told_twice_is_an_error_of_the_old_release(told):
    run = told("store twice", OLD)
    assert run["status"] == "errored" and run["error"][:2] == [run["operations"], "KeyError"]


@pytest.mark.parametrize("version", NEWER)
def test_the_end_of_a_store_told_twice_is_borne_by_later_ones(told, version):
    assert_clean(told("store twice", version))


@pytest.mark.parametrize("version", VERSIONS)
def test_one_worker_s_second_word_passes_for_another_s(told, version):
    """Workers are counted, not named: the pages of a copy that is under way are given up, and lent."""
    run = told("counted", version)
    assert run["first"][0] == "I12" and " transfers name it" in run["first"][2]
    assert version == OLD or {"I12", "I15"} <= set(run["findings"])
    assert run["status"] == ("errored" if version == OLD else "finished")


@pytest.mark.parametrize("version", VERSIONS)
def test_a_load_whose_end_is_never_told_is_given_up_in_plain_words(told, version):
    run = told("load lost", version)
    assert run["status"] == "finished" and run["ended"] + run["errors"] == run["started"]
    assert run["error"][2].endswith("waits for a load whose end nobody has told")
    assert any("; transfers that have not ended hold " in message for message in run["messages"])
    assert "I20" in run["findings"]


@pytest.mark.parametrize("version", VERSIONS)
def test_stores_whose_ends_are_never_told_are_left_after_the_drain(told, version):
    run = told("store lost", version)
    assert run["status"] == "finished" and run["ended"] + run["errors"] == run["started"]
    assert "I20" in run["findings"]
    assert any("; transfers that have not ended hold " in message for message in run["messages"])


@pytest.mark.parametrize("version", VERSIONS)
def test_stores_that_do_not_wait_for_the_pass_are_found_when_they_are_read(told, version):
    """vllm#45704: a page that another request of the step is to write is stored as it was before."""
    run = told("unordered", version)
    assert run["first"][0] == "I16" and set(run["findings"]) == {"I16"}


@pytest.mark.parametrize("version", VERSIONS)
def test_what_a_load_has_brought_is_not_computed(ask, version):
    run = ask("failed_load_steps.py", version, "well")
    assert run["steps"] == [[96, 97], [97, 98]]
    assert (run["waits"], run["findings"], run["crashed"]) == (0, [], "")


def test_a_failed_load_is_tried_again_by_the_old_release(ask):
    run = ask("failed_load_steps.py", OLD, "failed")
    assert (run["steps"], run["waits"], run["findings"]) == ([[96, 97], [97, 98]], 0, [])


@pytest.mark.parametrize("version", NEWER)
def test_a_request_whose_load_has_failed_waits_for_its_own_reservation(ask, version):
    """All blocks are free, nothing else is there, and it is never scheduled; the twin lets go of what it reserved."""
    run = ask("failed_load_steps.py", version, "failed")
    assert (run["steps"], run["waits"], run["free"]) == ([], 50, 10)
    run = ask("failed_load_steps.py", version, "released")
    assert (run["steps"], run["waits"], run["findings"]) == ([[96, 97], [97, 98]], 0, [])


def test_the_configuration_finds_it_by_itself(ask):
    """Request 10 is in the way of 11, whose load has ended."""
    cases = {
        "one": [
            "linker.on_failed_load=recompute",
            "injections.failed_loads=0.1",
            *OTHERS,
            "workload.requests=60",
        ]
    }
    run = ask("transfers_run.py", "0.33.0", "0.33.0", json.dumps(cases))["one"]
    assert run["error"] == [
        203,
        "RequestStuck",
        "request 10 with 585 tokens is not scheduled on an idle rank",
    ]


def test_a_run_with_injections_is_the_same_again(ask):
    given = [*SHORT, *CASES["late"], "linker.workers=2"]
    cases = json.dumps({"one": given, "other": [*given, "seed=2"]})
    first, again = (ask("transfers_run.py", "0.33.0", "0.33.0", cases, hash_seed=seed) for seed in "12")
    assert first == again
    assert first["one"]["digest"] != first["other"]["digest"]


def test_the_configuration_is_clean_and_reaches_every_state(ask):
    cases = {"whole": ["injections.failed_loads=0.1", *OTHERS]}
    run = ask("transfers_run.py", "0.33.0", "0.33.0", json.dumps(cases))["whole"]
    assert (run["status"], run["errors"], run["findings"]) == ("finished", 0, {})
    assert run["ended"] == run["started"] == 400
    states = ("waiting", "loading", "prefill", "decode", "preempted", "storing")
    assert all(run["marks"].get(f"aborted_{state}") for state in states)
