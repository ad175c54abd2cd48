"""Trees that no rank could use, told from their source in one line before any rank is started."""

from pathlib import Path

import pytest
from nightly_bench import MATRIX
from target_tree import ALLOCATOR, ALLOCATOR_PATH, make_tree

from stress.cli import main
from stress.target.edited_tree import changes_of
from stress.target.name import TargetError
from stress.target.project import PROJECTS
from stress.target.syntax import syntax_error

SGLANG = PROJECTS["sglang"]
HEAD = f"--- a/{ALLOCATOR_PATH}\n+++ b/{ALLOCATOR_PATH}\n"


@pytest.fixture
def refused(ranks, capsys, monkeypatch, tmp_path):
    """Call with the arm's target: the one line on stderr; nothing is started or kept."""
    monkeypatch.setenv("KVSTRESS_CACHE", str(tmp_path / "cache"))

    def call(target):
        fakes = ranks(patched="pass")
        capsys.readouterr()
        line = f"arms.patched.target={target}"
        assert main(["run", "smoke", "--arm", "patched", "--launcher", "local", "--set", line]) == 2
        printed = capsys.readouterr()
        assert (printed.out, len(printed.err.splitlines())) == ("", 1)
        assert (fakes.runs, Path("runs").exists()) == ([], False)
        return printed.err

    return call


def test_a_tree_without_a_segment_free(refused, tmp_path):
    tree = make_tree(tmp_path / "tree")
    file = tree / ALLOCATOR_PATH
    file.write_text(ALLOCATOR.replace("free_swa_segment", "free_swa"))
    assert refused(f"path:{tree}") == (
        f"kvstress: target 'path:{tree}': has no segment free; use SGLang 0.5.20 or later\n"
    )


def test_a_checkout_that_does_not_compile(refused, tmp_path):
    tree = make_tree(tmp_path / "tree")
    file = tree / ALLOCATOR_PATH
    file.write_text(ALLOCATOR.replace("def free_group_end(self):", "def free_group_end(self:"))
    assert refused(f"path:{tree}") == (
        f"kvstress: target 'path:{tree}': {ALLOCATOR_PATH}:21: '(' was never closed; mend that file\n"
    )


def test_a_module_that_no_rank_executes_may_be_anything(ranks, monkeypatch, tmp_path):
    monkeypatch.setenv("KVSTRESS_CACHE", str(tmp_path / "cache"))
    fakes = ranks(patched="pass")
    tree = make_tree(tmp_path / "tree")
    for name in ("srt/mem_cache/storage/odd.py", "srt/layers/odd.py", "srt/mem_cache/qsa_kv_pool.py"):
        (tree / "sglang" / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / "sglang" / name).write_text("def (")
    told = ["--launcher", "local", "--set", f"arms.patched.target=path:{tree}"]
    assert main(["run", "smoke", "--arm", "patched", *told]) == 0
    assert len(fakes.runs) == 1
    (tree / "sglang/srt/mem_cache/odd.py").write_text("def (")
    assert main(["run", "smoke", "--arm", "patched", *told]) == 2


def test_another_project_s_tree_needs_no_segment_free(ranks, monkeypatch, tmp_path):
    monkeypatch.setenv("KVSTRESS_CACHE", str(tmp_path / "cache"))
    fakes = ranks(patched="pass")
    tree = make_tree(tmp_path / "tree", "vllm")
    told = ["--launcher", "local", "--set", f"arms.patched.target=path:{tree}"]
    assert main(["run", "smoke", "--arm", "patched", *told]) == 0
    assert len(fakes.runs) == 1


def test_a_patch_that_leaves_a_syntax_error_names_file_and_line_and_keeps_nothing(refused, tmp_path):
    tree = make_tree(tmp_path / "tree")
    patch = tmp_path / "bad.diff"
    patch.write_text(HEAD + '@@ -1,3 +1,4 @@\n """Pools."""\n+def broken(:\n \n \n')
    line = refused(f"path:{tree}+{patch}")
    assert line.startswith(f"kvstress: {patch}: leaves {ALLOCATOR_PATH}:2: ")
    assert line.endswith("; mend the patch\n")
    assert not list((tmp_path / "cache").rglob("target.json"))


def test_a_nightly_is_told_before_its_first_run(ranks, capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("KVSTRESS_CACHE", str(tmp_path / "cache"))
    fakes = ranks(unpatched="fail", patched="pass")
    tree = make_tree(tmp_path / "tree")
    (tree / ALLOCATOR_PATH).write_text("def (\nfree_swa_segment")
    setting = f'"arms.patched.target" = "path:{tree}"'
    Path("mine.toml").write_text(MATRIX.replace('"linker.store" = ["shared", "memory"]', setting))
    assert main(["nightly", "mine.toml", "--launcher", "local", "--out", "out"]) == 2
    told = capsys.readouterr().err
    assert told.startswith("kvstress: run smoke: target 'path:") and f"{ALLOCATOR_PATH}:1: " in told
    assert (len(told.splitlines()), fakes.runs, Path("out").exists()) == (1, [], False)


def test_a_tree_that_can_not_be_fetched_now_is_left_to_its_run(night, monkeypatch, tmp_path):
    monkeypatch.setenv("KVSTRESS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    Path("mine.toml").write_text(
        MATRIX.replace('"linker.store" = ["shared", "memory"]', '"arms.patched.target" = "sglang==0.5.23"')
    )
    code, document, made = night("out")
    assert (code, made) == (3, ["canary"])
    assert "could not be fetched" in document["runs"][0]["reasons"][0]


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ("x = 1\n", ""),
        ("x = '\\q'\n", ""),
        ("\n\nx = (\n", "f.py:3: "),
        ("return 1\n", "f.py:1: "),
        (" x = 1\n", "f.py:1: unexpected indent"),
        ("x = 1\0\n", "f.py:1: "),
        (b"# coding: latin-1\nx = '\xe9'\n", ""),
        (b"x = '\xe9'\n", "f.py:1: "),
    ],
)
def test_what_this_python_can_not_compile(source, told):
    found = syntax_error(source, "f.py")
    assert found.startswith(told) and bool(found) == bool(told)


def crlf(text):
    return text.replace("\n", "\r\n")


CHANGE = HEAD + '@@ -1,3 +1,3 @@\n-"""Pools."""\n+"""More."""\n \n \n'
ADDED = (
    "--- /dev/null\n+++ b/sglang/srt/new.py\n@@ -0,0 +1,2 @@\n+x = 1\n+y = 2\n\\ No newline at end of file\n"
)


@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_a_patch_with_the_line_ends_of_another_system_fits(tmp_path, mark):
    tree = make_tree(tmp_path / "tree")
    patch = tmp_path / "fix.diff"
    patch.write_bytes((mark + crlf(CHANGE + ADDED)).encode())
    assert changes_of(SGLANG, tree, (str(patch),)) == {
        ALLOCATOR_PATH: ALLOCATOR.replace("Pools", "More"),
        "sglang/srt/new.py": "x = 1\ny = 2",
    }


def test_blanks_stripped_from_empty_lines_of_context_are_no_matter(tmp_path):
    tree = make_tree(tmp_path / "tree")
    patch = tmp_path / "fix.diff"
    patch.write_bytes(crlf(CHANGE.replace("\n \n", "\n\n").replace("\n \n", "\n\n")).encode())
    assert b"\r\n\r\n\r\n" in patch.read_bytes()
    assert changes_of(SGLANG, tree, (str(patch),)) == {ALLOCATOR_PATH: ALLOCATOR.replace("Pools", "More")}


def test_a_file_with_such_line_ends_keeps_them(tmp_path):
    tree = make_tree(tmp_path / "tree")
    (tree / ALLOCATOR_PATH).write_bytes(crlf(ALLOCATOR).encode())
    patch = tmp_path / "fix.diff"
    patch.write_bytes(crlf(CHANGE).encode())
    assert changes_of(SGLANG, tree, (str(patch),)) == {
        ALLOCATOR_PATH: crlf(ALLOCATOR.replace("Pools", "More"))
    }


def test_a_patch_in_another_encoding_says_so(tmp_path):
    tree = make_tree(tmp_path / "tree")
    patch = tmp_path / "fix.diff"
    patch.write_bytes(CHANGE.encode("utf-16"))
    with pytest.raises(TargetError, match=r"fix\.diff: can't be read as a patch .* use a text file in UTF-8"):
        changes_of(SGLANG, tree, (str(patch),))
