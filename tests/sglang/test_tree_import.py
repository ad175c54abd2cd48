"""Real trees: two releases, fetched once into the cache, each asked in a process of its own.

Skipped where pip can't fetch them or a package of the extra `sglang` is missing.
"""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

from stress.cli import main
from stress.target import TargetUnavailable, add_target

VERSIONS = ("0.5.20", "0.5.23")
MISSING = [name for name in ("triton", "pydantic", "packaging") if importlib.util.find_spec(name) is None]
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(MISSING), reason=f"not installed: {', '.join(MISSING)} (kvstress[sglang])"),
]
_answers: dict = {}


def tree(name):
    try:
        return add_target(name)
    except TargetUnavailable as error:
        pytest.skip(str(error))


def answers(name):
    """What tree_questions.py says of a target, asked once a session."""
    if name not in _answers:
        script = Path(__file__).with_name("tree_questions.py")
        command = [sys.executable, "-W", "ignore", str(script), str(tree(name))]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
        _answers[name] = json.loads(done.stdout.splitlines()[-1])
    return _answers[name]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_tree_is_imported_by_itself(version):
    found = answers(f"sglang=={version}")
    assert found["version"] == version
    assert found["files"] == [True]
    assert found["threads_kept"] and found["same_again"]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_process_has_one_tree(version):
    found = answers(f"sglang=={version}")
    assert "load each tree in its own process" in found["other_root"]
    assert "ask for it at the first load" in found["other_core"]


@pytest.mark.parametrize("version", VERSIONS)
def test_stand_ins_stay_in_the_tree_and_answer_nothing(version):
    found = answers(f"sglang=={version}")
    installed = [name for name in found["left_in_process"] if importlib.util.find_spec(name)]
    assert found["left_in_process"] == installed
    assert found["missing_elsewhere"] == (importlib.util.find_spec("pybase64") is None)
    assert "sampling_params.SamplingParams was called" in found["stand_in"]


@pytest.mark.parametrize("version", VERSIONS)
def test_configuration_is_one_record_and_no_more(version):
    found = answers(f"sglang=={version}")
    assert "speculative_num_steps" in found["config"]
    assert found["config_is_one"] == "EAGLE"


@pytest.mark.parametrize("version", VERSIONS)
def test_substitutes_do_what_the_tree_does(version):
    found = answers(f"sglang=={version}")
    assert ("cpu_kernels" in found["substitutes"]) == (version == "0.5.20")
    assert found["kernel_mismatches"] == 0
    assert found["hash_mismatches"] == 0


@pytest.mark.parametrize("version", VERSIONS)
def test_the_ring_guard_is_what_the_edit_takes_away(version):
    assert answers(f"sglang=={version}")["ring_credit"] == 0
    assert answers(f"sglang=={version}+no-ring-guard")["ring_credit"] == "assert"


def test_repro_shows_the_three_rows_of_real_allocators(capsys):
    names = ["sglang==0.5.20", "sglang==0.5.23", "sglang==0.5.23+filter"]
    for name in names:
        tree(name)
    assert main(["repro", "--json", *(part for name in names for part in ("--target", name))]) == 0
    rows = {}
    for row in json.loads(capsys.readouterr().out)["rows"]:
        assert row["size"] == 4096
        rows[row["target"], row["release"], row["scenario"]] = row["freed"], row["available"], row["outcome"]
    for name in names[:2]:
        assert rows[name, "unpatched", "all_mapped"] == ([1, 2, 3, 4], 4096, "pass")
        assert rows[name, "unpatched", "no_peers"] == ([0, 0, 0, 0], 5120, "assert")
        assert rows[name, "unpatched", "half_evicted"] == ([1, 2, 0, 0], 4608, "assert")
    assert rows[names[2], "filter", "all_mapped"] == ([1, 2, 3, 4], 4096, "pass")
    assert rows[names[2], "filter", "no_peers"] == ([], 4096, "pass")
    assert rows[names[2], "filter", "half_evicted"] == ([1, 2], 4096, "pass")


def test_a_tree_without_segment_frees_is_refused_in_one_line(capsys):
    tree("sglang==0.5.19")
    assert main(["repro", "--target", "sglang==0.5.19"]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err == "kvstress: sglang 0.5.19 has no segment free; use 0.5.20 or later\n"


def test_target_check_tells_what_a_tree_has(capsys):
    tree("sglang==0.5.23")
    assert main(["target", "check", "sglang==0.5.23", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["version"] == "0.5.23"
    assert facts["features"]["segment_free"] and facts["features"]["linker"]
    assert "python" in facts["tree_cores"]
    assert main(["target", "list", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)["targets"]
    assert "sglang==0.5.23" in [entry["record"]["target"] for entry in listed]
