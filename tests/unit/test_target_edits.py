"""Built-in edits, on a tree in a few lines; and edited trees, which never write to their base."""

import os

import pytest
from target_tree import ALLOCATOR, ALLOCATOR_PATH, WRAPPER, WRAPPER_PATH, make_tree

from stress.target.edited_tree import changes_of, refuse_stale, write_edited
from stress.target.name import TargetError
from stress.target.project import PROJECTS
from stress.target.store import resolve

SGLANG = PROJECTS["sglang"]


@pytest.fixture
def tree(tmp_path):
    return make_tree(tmp_path / "base")


def test_filter_drops_the_padding_page_before_it_is_kept_or_returned(tree):
    (text,) = changes_of(SGLANG, tree, ("filter",)).values()
    line = "        swa_pages = swa_pages[swa_pages > 0]\n"
    assert text == ALLOCATOR.replace("        if self.free_group", f"{line}        if self.free_group")


def test_no_ring_guard_lifts_it_from_segment_frees_alone(tree):
    (text,) = changes_of(SGLANG, tree, ("no-ring-guard",)).values()
    assert text.count("self._swa_req_ring") == 1
    assert "return 0 if self._swa_req_ring else 1" in text
    compile(text, "swa.py", "exec")


def test_no_cursor_leaves_the_cursor_and_skips_by_the_linker_s_pools(tree):
    (text,) = changes_of(SGLANG, tree, ("no-cursor",)).values()
    assert "set_evicted_seqlen" not in text
    assert "or (swa is not None and PoolName.SWA not in cache_linker.pools)" in text
    assert "is_swa_req_ring(cache.allocator)" in text
    compile(text, "linker.py", "exec")


def test_no_cursor_keeps_a_rule_that_asks_the_pools(tree):
    rule = "swa is not None and PoolName.SWA not in cache_linker.pools"
    text = WRAPPER.replace(
        "swa is not None and is_swa_req_ring(\n            cache.allocator\n        )", rule
    )
    (tree / WRAPPER_PATH).write_text(text)
    (edited,) = changes_of(SGLANG, tree, ("no-cursor",)).values()
    assert edited.count("_skip_swa") == 1
    assert f"self._skip_swa = {rule}\n" in edited


def test_edits_stand_on_each_other(tree, tmp_path):
    patch = tmp_path / "more.diff"
    patch.write_text(
        f'--- a/{ALLOCATOR_PATH}\n+++ b/{ALLOCATOR_PATH}\n@@ -1 +1 @@\n-"""Pools."""\n+"""More."""\n'
    )
    changes = changes_of(SGLANG, tree, ("filter", str(patch), "no-cursor"))
    assert set(changes) == {ALLOCATOR_PATH, WRAPPER_PATH}
    assert changes[ALLOCATOR_PATH].startswith('"""More."""')
    assert "swa_pages[swa_pages > 0]" in changes[ALLOCATOR_PATH]


@pytest.mark.parametrize("edit", ["filter", "no-cursor", "no-ring-guard"])
@pytest.mark.parametrize("lost", ["function", "place", "class"])
def test_a_tree_without_the_place_is_refused(tree, edit, lost):
    path = WRAPPER_PATH if edit == "no-cursor" else ALLOCATOR_PATH
    text = (tree / path).read_text()
    gone = {
        "function": (("def load_back", "def free_group_end", "def _free_swa_pages"), "def other"),
        "place": (("_skip_swa", "_swa_req_ring", "swa_page_ids_group"), "other"),
        "class": (("class ",), "class Other"),
    }[lost]
    for name in gone[0]:
        text = text.replace(name, gone[1])
    if (edit, lost) == ("filter", "function"):
        text = text.replace(".append(swa_pages)", ".extend(swa_pages)")
    (tree / path).write_text(text)
    with pytest.raises(TargetError, match=rf"edit '{edit}': .* has no .*; use a tree that has") as refused:
        changes_of(SGLANG, tree, (edit,))
    assert "\n" not in str(refused.value)


def test_an_edited_tree_shares_files_and_never_writes_to_its_base(tree, tmp_path):
    edited = tmp_path / "edited"
    edited.mkdir()
    changes = changes_of(SGLANG, tree, ("filter",))
    write_edited(SGLANG, tree, changes, edited, link=True)
    assert os.path.samefile(tree / WRAPPER_PATH, edited / WRAPPER_PATH)
    assert not os.path.samefile(tree / ALLOCATOR_PATH, edited / ALLOCATOR_PATH)
    assert (tree / ALLOCATOR_PATH).read_text() == ALLOCATOR
    refuse_stale(edited, changes)
    (edited / ALLOCATOR_PATH).write_text(ALLOCATOR)
    with pytest.raises(TargetError, match="remove that folder"):
        refuse_stale(edited, changes)


def test_a_folder_is_copied_and_edited_anew_when_it_changes(tree, tmp_path, monkeypatch):
    monkeypatch.setenv("KVSTRESS_CACHE", str(tmp_path / "cache"))
    first = resolve(f"path:{tree}+filter")
    assert not os.path.samefile(tree / WRAPPER_PATH, first / WRAPPER_PATH)
    assert resolve(f"path:{tree}+filter") == first
    (tree / ALLOCATOR_PATH).write_text(ALLOCATOR + "\n# changed\n")
    second = resolve(f"path:{tree}+filter")
    assert second != first
    assert "# changed" in (second / ALLOCATOR_PATH).read_text()
    assert resolve(f"path:{tree}") == tree
