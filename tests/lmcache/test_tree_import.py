"""A real LMCache release, asked in a process of its own; skipped where it can't be had: see conftest."""

import pytest

from stress.target import TargetError
from stress.target.process import ask_tree

REPORT = "stress.engine.lmcache.tree_report"
SUBSTITUTES = ["logging", "statistics", "numa", "collected"]
pytestmark = pytest.mark.slow


def test_only_what_the_allocator_needs_is_imported(lmcache_tree, answer):
    found = answer("lmcache_tree_questions.py", lmcache_tree)
    assert (found["version"], found["substitutes"], found["files"]) == ("0.5.6", SUBSTITUTES, [True])
    assert {"lmcache", "lmcache.v1", "lmcache.observability", "sortedcontainers"} <= set(found["stand_ins"])
    assert not {
        name for name in found["left_in_process"] if name.split(".")[0] in ("sortedcontainers", "cachetools")
    }
    assert found["loggers"] == []
    assert found["same_again"] is True
    assert "load each tree in its own process" in found["other_root"]


def test_what_is_not_imported_can_not_be_asked(lmcache_tree, answer):
    found = answer("lmcache_tree_questions.py", lmcache_tree)
    assert "lmcache.v1.pin_monitor" in found["pinned"]
    assert "add it to TREE_MODULES in stress/engine/lmcache/tree_finder.py" in found["pinned"]


def test_pages_are_numbered_by_where_they_lie_and_lent_whole_or_not_at_all(lmcache_tree, answer):
    found = answer("lmcache_tree_questions.py", lmcache_tree)
    assert (found["numbers"], found["page_bytes"]) == ([1, 2, 3], [64, 64])
    assert found["room"] == [5, True, 5]
    assert found["collected"] == []


def test_the_report_says_what_a_tree_has(lmcache_tree):
    report = ask_tree(REPORT, lmcache_tree)
    assert (report["version"], report["usable"], report["installed"]) == ("0.5.6", True, False)
    assert report["substitutes"] == SUBSTITUTES and report["stand_ins"]
    assert report["features"] == {
        "batched_allocate": True,
        "reference_counts": True,
        "second_free_refused": False,
    }


def test_an_edited_tree_answers_for_itself(guarded_tree):
    """The controls of the report: an edit that refuses the second free, and one that takes the counts away."""
    assert ask_tree(REPORT, guarded_tree)["features"]["second_free_refused"] is True
    module = guarded_tree / "lmcache" / "v1" / "memory_management.py"
    module.write_text(module.read_text().replace("def ref_count_up", "def count_up"))
    report = ask_tree(REPORT, guarded_tree)
    assert (report["features"]["reference_counts"], report["features"]["batched_allocate"]) == (False, True)
    assert report["usable"] is False


@pytest.mark.parametrize(
    ("made", "told"),
    [
        ("", "holds no lmcache/v1; name the folder that holds lmcache/"),
        (
            "lmcache/v1",
            "has no lmcache.v1.memory_allocators.paged_tensor_memory_allocator; use an LMCache that has it",
        ),
    ],
)
def test_a_folder_without_the_allocator_is_refused_in_one_line(tmp_path, made, told):
    (tmp_path / made).mkdir(parents=True, exist_ok=True)
    with pytest.raises(TargetError, match=told):
        ask_tree(REPORT, tmp_path)
