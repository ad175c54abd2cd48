"""`kvstress target remove`: folders of the cache that hold a target, and nothing else, whatever is named."""

import json

import pytest
from target_tree import ALLOCATOR, ALLOCATOR_PATH, make_tree

from stress.cli import main
from stress.target.cache import targets_folder
from stress.target.store import RECORD, add_target


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """A cache with one edited tree in it, the tree's name, and a folder beside the cache."""
    monkeypatch.setenv("KVSTRESS_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    tree = make_tree(tmp_path / "tree")
    add_target(f"path:{tree}+filter")
    (tmp_path / "cache" / "other").mkdir()
    (tmp_path / "cache" / "other" / RECORD).write_text("{}")
    return f"path:{tree}+filter"


def kept():
    return sorted(path.name for path in targets_folder().iterdir())


@pytest.mark.parametrize("named", ["target", "folder", "relative"])
def test_a_tree_goes_by_its_name_or_its_folder_s(cache, capsys, tmp_path, named):
    (folder,) = kept()
    name = {"target": cache, "folder": folder, "relative": "path:tree+filter"}[named]
    assert main(["target", "remove", name]) == 0
    assert capsys.readouterr().out == f"{name}  {targets_folder() / folder} is removed\n"
    assert (kept(), (tmp_path / "tree" / ALLOCATOR_PATH).read_text()) == ([], ALLOCATOR)
    assert main(["target", "remove", name]) == 2
    assert f"target {name!r}: none of that name in" in capsys.readouterr().err


def test_every_state_of_a_folder_goes_with_its_name(cache, capsys, tmp_path):
    (tmp_path / "tree" / ALLOCATOR_PATH).write_text(ALLOCATOR + "# changed\n")
    add_target(cache)
    folders = kept()
    assert len(folders) == 2
    assert main(["target", "remove", cache, "--json"]) == 0
    removed = json.loads(capsys.readouterr().out)["targets"]
    assert [each["folder"] for each in removed] == [str(targets_folder() / name) for name in folders]
    assert kept() == []


def test_a_tree_goes_although_its_folder_or_its_record_is_no_more(cache, tmp_path):
    (folder,) = kept()
    (tmp_path / "tree").rename(tmp_path / "moved")
    (targets_folder() / folder / RECORD).write_text("{")
    assert main(["target", "remove", cache]) == 2
    assert main(["target", "remove", folder]) == 0
    assert kept() == []


@pytest.mark.parametrize(
    "name",
    [
        "",
        ".",
        "..",
        "../other",
        "/",
        "/tmp",
        "*",
        "tree",
        "path:tree",
        "sglang",
        "reference",
        "notes",
        "none",
    ],
)
def test_nothing_else_is_removed(cache, capsys, tmp_path, name):
    (targets_folder() / "notes").mkdir()
    before = kept()
    assert main(["target", "remove", name]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1
    assert kept() == before
    assert (tmp_path / "cache" / "other" / RECORD).exists() and (tmp_path / "tree" / ALLOCATOR_PATH).exists()


def test_of_a_link_the_link_goes_alone(cache, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / RECORD).write_text((targets_folder() / kept()[0] / RECORD).read_text())
    (targets_folder() / "linked").symlink_to(elsewhere)
    assert main(["target", "remove", "linked"]) == 0
    assert "linked" not in kept() and (elsewhere / RECORD).exists()


def test_the_rest_of_a_base_is_whole_without_its_edited_tree(tmp_path, monkeypatch):
    """Files are shared by hard links: what stays keeps its own."""
    monkeypatch.setenv("KVSTRESS_CACHE", str(tmp_path))
    base = make_tree(targets_folder() / "sglang-0.5.23")
    (base / RECORD).write_text('{"target": "sglang==0.5.23"}')
    edited = add_target("sglang==0.5.23+filter")
    assert main(["target", "remove", "sglang==0.5.23"]) == 0
    assert "swa_pages[swa_pages > 0]" in (edited / ALLOCATOR_PATH).read_text()
    assert kept() == [edited.name]
