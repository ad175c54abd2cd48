"""Real vLLM trees: releases, each asked in a process of its own. Skipped where they can't be had: see conftest."""

import importlib.util
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from stress.target import TargetError
from stress.target.process import ask_tree

VERSIONS = ("0.20.2", "0.28.0", "0.33.0")
ALL_HAVE = {"external_tokens", "new_step_starts", "mixed_block_sizes", "eagle_groups", "simple_offload"}
SUBSTITUTES = ["logging", "config", "platform", "lazy", "none_hash"]
pytestmark = pytest.mark.slow
_answers: dict = {}


@pytest.fixture
def answers(vllm_tree):
    """What vllm_tree_questions.py says of a release, asked once a session for each of its parts."""

    def ask(version, part="without_torch"):
        root = vllm_tree(version)
        if (root, part) not in _answers:
            script = Path(__file__).with_name("vllm_tree_questions.py")
            command = [sys.executable, "-W", "ignore", str(script), str(root), part]
            done = subprocess.run(command, capture_output=True, text=True, timeout=300)
            assert done.returncode == 0, done.stderr
            assert done.stderr == ""
            _answers[root, part] = json.loads(done.stdout)
        return _answers[root, part]

    return ask


@pytest.mark.parametrize("version", VERSIONS)
def test_a_tree_is_imported_by_itself(answers, version):
    found = answers(version)
    assert found["version"] == version
    assert found["modules"] == 10
    assert found["files"] == [True]
    assert found["same_again"]
    assert "load each tree in its own process" in found["other_root"]


@pytest.mark.parametrize("version", VERSIONS)
def test_nothing_but_the_tree_is_left_in_the_process(answers, version):
    found = answers(version)
    assert not found["torch_imported"]
    assert found["left_in_process"] == []
    assert found["cbor2_elsewhere"] == (importlib.util.find_spec("cbor2") is not None)
    assert found["environment_kept"]
    assert found["logging_kept"]


@pytest.mark.parametrize("version", VERSIONS)
def test_stand_ins_answer_nothing(answers, version):
    refused = answers(version)["refused"]
    assert "SamplingParams was called" in refused["class"]
    assert "asked for .is_cuda" in refused["platform"]
    assert "set_current_vllm_config was called" in refused["config"]
    assert "cbor2.dumps was called" in refused["package"]
    assert "torch.cuda was asked for .is_available" in refused["torch"]
    assert "torch.version was used by __bool__" in refused["torch_part"]
    assert "torch.is_tensor was called" in refused["torch_test"]
    assert "add it to TREE_MODULES in stress/engine/vllm/tree_finder.py" in refused["class"]
    assert "add its package to NEEDED in stress/engine/vllm/tree_finder.py" in refused["package"]


@pytest.mark.parametrize("version", VERSIONS)
def test_substitutes_say_what_they_are_there_for(answers, version):
    found = answers(version)
    assert found["substitutes"] == ["torch", *SUBSTITUTES]
    assert found["says"] == {"config": None, "platform": None, "enabled": False, "known_to_others": False}
    assert found["none_hash"]
    assert found["sizes"] == {"float32": 4, "bfloat16": 2, "uint8": 1}
    assert found["page_bytes"] == 2 * 16 * 2 * 8 * 2


@pytest.mark.parametrize("version", VERSIONS)
def test_block_hashes_are_chained_and_the_same_in_every_process(answers, version):
    found = answers(version)
    assert len(found["hashes"]) == 2
    assert found["hashes"] == found["expected"] == answers("0.33.0")["hashes"]


@pytest.mark.parametrize("version", VERSIONS)
def test_features_are_those_of_the_release(answers, version):
    has = {name for name, value in answers(version)["features"].items() if value}
    assert has == (ALL_HAVE if version == "0.20.2" else set(answers(version)["features"]))


@pytest.mark.parametrize("version", VERSIONS)
def test_a_process_that_has_torch_lends_it(answers, version):
    found, without = answers(version, "torch_first"), answers(version)
    assert found["is_the_process_s"]
    assert found["substitutes"] == SUBSTITUTES
    for asked in ("version", "features", "sizes", "page_bytes", "hashes"):
        assert found[asked] == without[asked]


def test_who_imports_torch_later_gets_the_real_one(answers):
    assert answers("0.33.0", "torch_later") == {"real": 3.0, "trees_own": 2}


@pytest.mark.parametrize("version", VERSIONS)
def test_a_scheduler_is_imported_where_it_is_asked_for(answers, version):
    found = answers(version, "with_scheduler")
    assert found["scheduler"] == "vllm.v1.core.sched.scheduler"
    assert found["outputs"] == "vllm.v1.outputs"
    assert not found["torch_imported"]
    assert found["left_in_process"] == []
    assert found["features"] == answers(version)["features"]
    assert (
        "was imported without its scheduler; ask for it at the first load" in answers(version)["no_scheduler"]
    )


def test_a_missing_package_is_named_and_a_failed_load_leaves_nothing(answers):
    found = answers("0.33.0", "one_package_missing")
    assert "needs pydantic_core, which is not installed; install kvstress[vllm]" in found["told"]
    assert found["left"] == []
    assert found["then"] == "0.33.0"


@pytest.mark.parametrize("version", VERSIONS)
def test_the_report_says_what_a_tree_has(vllm_tree, answers, version):
    report = ask_tree("stress.engine.vllm.tree_report", vllm_tree(version))
    assert report["version"] == version
    assert report["usable"] is True
    assert report["installed"] is False
    assert report["group_kinds"] == ["full", "sliding_window", "chunked_local"]
    assert report["features"] == answers(version)["features"]
    assert report["substitutes"] == ["torch", *SUBSTITUTES]
    assert report["stand_ins"] == len(answers(version)["stand_ins"])


def test_an_edited_tree_answers_for_itself(vllm_tree, tmp_path):
    """The control of the report: what an edit takes from a release, its report lacks."""
    edited = linked_copy(vllm_tree("0.33.0"), tmp_path)
    manager = edited / "kv_cache_manager.py"
    source = manager.read_text()
    manager.write_text(source.replace("num_external_computed_tokens", "other"))
    report = ask_tree("stress.engine.vllm.tree_report", tmp_path)
    assert not report["features"]["external_tokens"] and report["features"]["new_step_starts"]
    assert report["group_kinds"] == ["full", "sliding_window", "chunked_local"]
    assert report["usable"] is False
    manager.write_text(source.replace("self.block_pool = ", "self.other_pool = "))
    report = ask_tree("stress.engine.vllm.tree_report", tmp_path)
    assert report["features"]["external_tokens"]
    assert report["group_kinds"] == []
    assert report["usable"] is False


def linked_copy(root, folder):
    """A tree in `folder` that shares its files with `root`, but for those of vllm/v1/core, which it returns."""
    own = folder / "vllm" / "v1"
    own.mkdir(parents=True)
    for above, below in ((root / "vllm", own.parent), (root / "vllm" / "v1", own)):
        for part in above.iterdir():
            if part.name not in ("v1", "core", "__pycache__"):
                (below / part.name).symlink_to(part)
    return shutil.copytree(root / "vllm" / "v1" / "core", own / "core")


def test_a_folder_without_a_tree_is_refused_in_one_line(tmp_path):
    with pytest.raises(TargetError, match="holds no vllm/v1/core; name the folder that holds vllm/"):
        ask_tree("stress.engine.vllm.tree_report", tmp_path)


def test_a_tree_that_lacks_a_module_is_refused_in_one_line(tmp_path):
    (tmp_path / "vllm" / "v1" / "core").mkdir(parents=True)
    with pytest.raises(TargetError, match=r"has no vllm\.utils; use vLLM 0\.20 or later"):
        ask_tree("stress.engine.vllm.tree_report", tmp_path)
