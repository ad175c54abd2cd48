"""vLLM's own scheduler, driven by driven_steps.py and driven_run.py. Skipped where there is no tree: see conftest."""

import pytest

VERSIONS = ("0.20.2", "0.28.0", "0.33.0")
pytestmark = pytest.mark.slow
# A run of a few dozen requests in which many are preempted.
SHORT = ("workload.requests=60", "check.require=[]")
GROUPS = 'pool.groups=["full", "sliding:16:64", "chunked:16:64"]'
_steps: dict = {}


@pytest.fixture
def steps(ask):
    """A function of a version and a policy: what driven_steps.py tells of it, asked once a version for all of them."""

    def told(version, policy):
        if version not in _steps:
            _steps[version] = ask("driven_steps.py", version, "all")
        return _steps[version][policy]

    return told


@pytest.mark.parametrize("version", VERSIONS)
def test_preempted_in_the_step_that_scheduled_it(steps, version):
    """A's positions 96 to 112 are in the prefix map and nothing has computed them; A starts behind them."""
    told = steps(version, "priority")
    assert (told["left"], told["crashed"]) == (0, "")
    faulty = next(number for number, step in enumerate(told["steps"]) if step["preempted"])
    assert told["steps"][faulty] == {"computes": {"B": [32, 33]}, "preempted": ["A"]}
    assert told["steps"][faulty - 1]["computes"]["A"][1] == 96
    again = next(step for step in told["steps"][faulty:] if "A" in step["computes"])
    assert again["computes"]["A"] == [112, 120]
    found, read = told["findings"]
    assert found[0] == "I17" and found[3].startswith(
        "request 0 finds page 9 of full, but nothing has written it"
    )
    assert found[1] == 3 + 3 * faulty  # two submissions and three operations a step
    assert (read[0], read[3]) == (
        "I16",
        "page 9 holds nothing, request 0 reads it as position 96 (commit of request 0)",
    )


@pytest.mark.parametrize("version", VERSIONS)
def test_first_come_first_served_takes_its_victim_from_the_end(steps, version):
    """The same requests: the last of those that run loses its slots, and has none of this step."""
    told = steps(version, "fcfs")
    assert [step["preempted"] for step in told["steps"] if step["preempted"]] == [["B"]]
    assert (told["findings"], told["left"], told["crashed"]) == ([], 0, "")


@pytest.mark.parametrize("version", VERSIONS)
def test_a_preemption_that_is_rolled_back_is_clean(steps, version):
    """The twin: the same steps up to there, and A starts where its computed tokens end."""
    told = steps(version, "rolled-back")
    faulty = next(number for number, step in enumerate(told["steps"]) if step["preempted"])
    again = next(step for step in told["steps"][faulty:] if "A" in step["computes"])
    assert again["computes"]["A"] == [96, 120]
    assert (told["findings"], told["left"], told["crashed"]) == ([], 0, "")


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("more", [(), ("serving.draft_tokens=4", "serving.accept_mean=2.4"), (GROUPS,)])
def test_a_workload_under_fcfs_is_clean(ask, version, more):
    told = ask("driven_run.py", version, version, "fcfs", *SHORT, *more)
    assert (told["status"], told["crashed"], told["errors"]) == ("finished", "", 0)
    assert told["ended"] == told["started"] == 60
    assert told["findings"] == {}
    assert told["marks"]["retracted"] > 5
    assert {"I2", "I3", "I9", "I12", "I13", "I16", "I17", "I20", "I22"} <= set(told["watched"])


def test_a_run_is_the_same_again(ask):
    first, again = (
        ask("driven_run.py", "0.33.0", "0.33.0", "priority", *SHORT, hash_seed=hash_seed)
        for hash_seed in "12"
    )
    assert first == again
    other = ask("driven_run.py", "0.33.0", "0.33.0", "fcfs", *SHORT)
    assert other["digest"] != first["digest"]


def test_the_configuration_finds_it_by_itself(ask):
    told = ask("driven_run.py", "0.33.0", "0.33.0", "priority")
    assert (told["first"], told["crashed"], told["errors"]) == (["I17", 527, 532], "", 0)
    assert set(told["findings"]) == {"I16", "I17"}
