"""The applier of unified diffs: exact, inside its tree, and never in part."""

import difflib

import pytest
from target_tree import ALLOCATOR, ALLOCATOR_PATH, TREES, make_tree

from stress.target.name import TargetError
from stress.target.patch_tree import patch_tree
from stress.target.project import PROJECTS


def diff_of(before, after, old=f"a/{ALLOCATOR_PATH}", new=f"b/{ALLOCATOR_PATH}", context=3):
    lines = difflib.unified_diff(before.splitlines(True), after.splitlines(True), old, new, n=context)
    return "".join(
        line if line.endswith("\n") else line + "\n\\ No newline at end of file\n" for line in lines
    )


def apply(root, patch, changed=None, project="sglang"):
    return patch_tree(PROJECTS[project], root, patch, "fix.diff", changed or {})


@pytest.fixture
def tree(tmp_path):
    return make_tree(tmp_path / "tree")


@pytest.mark.parametrize("context", [0, 1, 3, 50])
@pytest.mark.parametrize(
    ("what", "by"),
    [
        ("return", "return 1"),
        ('"""Pools."""\n', ""),
        ("1\n", "1"),
        ("    def ", "    # one more\n\n    def "),
        ("", "first\n"),
    ],
)
def test_what_difflib_writes_is_applied(tree, what, by, context):
    after = ALLOCATOR.replace(what, by) if what else by + ALLOCATOR
    assert apply(tree, diff_of(ALLOCATOR, after, context=context)) == {ALLOCATOR_PATH: after}
    assert (tree / ALLOCATOR_PATH).read_text() == ALLOCATOR


@pytest.mark.parametrize("prefix", ["a/", "", "a/python/", "python/"])
def test_paths_of_a_wheel_and_of_a_checkout(tree, prefix):
    name = prefix + ALLOCATOR_PATH
    assert set(apply(tree, diff_of(ALLOCATOR, ALLOCATOR + "x\n", name, name))) == {ALLOCATOR_PATH}


def test_line_ends_and_form_feeds_are_kept(tree):
    odd = "a\r\nb\x0cc\u2028d\r\ne"
    (tree / ALLOCATOR_PATH).write_bytes(odd.encode())
    patch = f"--- a/{ALLOCATOR_PATH}\n+++ b/{ALLOCATOR_PATH}\n@@ -1,2 +1,2 @@\n-a\r\n+A\r\n b\x0cc\u2028d\r\n"
    assert apply(tree, patch) == {ALLOCATOR_PATH: "A" + odd[1:]}


def test_a_hunk_that_moved_is_found_where_its_lines_stand_alone(tree):
    patch = diff_of(ALLOCATOR, ALLOCATOR.replace("else 1", "else 2"))
    shifted = "# a line more\n" * 9 + ALLOCATOR
    assert apply(tree, patch, {ALLOCATOR_PATH: shifted}) == {
        ALLOCATOR_PATH: shifted.replace("else 1", "else 2")
    }
    with pytest.raises(TargetError, match=r"fix\.diff: hunk 1 does not fit .*swa\.py at line"):
        apply(tree, patch, {ALLOCATOR_PATH: "# a line more\n" + ALLOCATOR * 2})


def test_files_are_added_and_deleted(tree):
    added = diff_of("", "x = 1\n", "/dev/null", "b/sglang/srt/new/mod.py")
    deleted = diff_of(ALLOCATOR, "", new="/dev/null")
    assert apply(tree, added + deleted) == {"sglang/srt/new/mod.py": "x = 1\n", ALLOCATOR_PATH: None}


def test_a_pull_request_s_other_files_are_left_out(tree):
    outside = diff_of("", "x\n", "/dev/null", "b/test/registered/test_x.py")
    assert set(apply(tree, outside + diff_of(ALLOCATOR, "y\n"))) == {ALLOCATOR_PATH}
    with pytest.raises(TargetError, match="no file below sglang/"):
        apply(tree, outside)


def test_files_of_the_package_that_were_not_unpacked_are_left_out(tree):
    name = "sglang/test/test_x.py"
    unwanted = diff_of("x\n", "y\n", f"a/{name}", f"b/{name}")
    assert set(apply(tree, unwanted + diff_of(ALLOCATOR, "y\n"))) == {ALLOCATOR_PATH}
    (tree / "sglang" / "test").mkdir()
    (tree / name).write_text("x\n")
    assert apply(tree, unwanted) == {name: "y\n"}


@pytest.mark.parametrize("project", ["vllm", "lmcache"])
def test_a_patch_of_another_project_s_tree(tmp_path, project):
    root = make_tree(tmp_path / project, project)
    path, text = next(iter(TREES[project].items()))
    patch = diff_of(text, text + "x = 1\n", f"a/{path}", f"b/{path}")
    assert apply(root, patch, project=project) == {path: text + "x = 1\n"}
    with pytest.raises(TargetError, match=f"changes no file below {project}/; use a patch of the package"):
        apply(root, diff_of(ALLOCATOR, "y\n"), project=project)


HOSTILE_NAMES = [
    "/etc/passwd",
    "../outside.py",
    "a/../../outside.py",
    "a/sglang/../../outside.py",
    "b/sglang/srt/../../../outside.py",
    "a//etc/../../x",
    "sglang\\..\\..\\outside.py",
    '"a/sglang/\\056\\056/x.py"',
    "a/sglang/\0.py",
]


@pytest.mark.parametrize("name", HOSTILE_NAMES)
@pytest.mark.parametrize("side", ["changed", "added", "deleted"])
def test_a_path_that_leaves_the_tree_is_refused(tree, name, side):
    (tree.parent / "outside.py").write_text("secret\n")
    old, new = ("/dev/null" if side == "added" else name), ("/dev/null" if side == "deleted" else name)
    lines = {"changed": ("secret\n", "mine\n"), "added": ("", "mine\n"), "deleted": ("secret\n", "")}[side]
    with pytest.raises(TargetError, match="must stay in its tree"):
        apply(tree, diff_of(ALLOCATOR, ALLOCATOR + "x\n") + diff_of(*lines, old, new))


@pytest.mark.parametrize("link", ["sglang/srt/mem_cache/link", "sglang/srt/mem_cache/allocator/swa.py"])
def test_a_link_is_not_followed(tree, tmp_path, link):
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "swa.py").write_text("secret\n")
    (tree / link).unlink(missing_ok=True)
    (tree / link).symlink_to(secret / "swa.py" if link.endswith(".py") else secret)
    name = link if link.endswith(".py") else f"{link}/swa.py"
    with pytest.raises(TargetError, match="passes through a link"):
        apply(tree, diff_of("secret\n", "mine\n", name, name))


@pytest.mark.parametrize(
    ("patch", "why"),
    [
        ("", "changes nothing"),
        ("hello\n", "changes nothing"),
        (f"--- a/{ALLOCATOR_PATH}\n+++ b/{ALLOCATOR_PATH}\n", "changes nothing"),
        ("@@ -1 +1 @@\n-a\n+b\n", "fix.diff:1: a hunk before"),
        (f"--- {ALLOCATOR_PATH}\n+++ {ALLOCATOR_PATH}\n@@ -x +y @@\n", "fix.diff:3: .* is no hunk header"),
        (
            f"--- {ALLOCATOR_PATH}\n+++ {ALLOCATOR_PATH}\n@@ -1,3 +1 @@\n-a\n",
            "does not hold what its header counts",
        ),
        (
            f"--- {ALLOCATOR_PATH}\n+++ {ALLOCATOR_PATH}\n@@ -1 +1 @@\n-a\n-b\n+c\n",
            "does not hold what its header",
        ),
        ("diff --git a/x b/y\nrename from x\nrename to y\n", "fix.diff:2: 'rename from x' is not supported"),
        ("GIT binary patch\nliteral 3\n", "not supported"),
        (diff_of("", "x\n", "/dev/null", f"b/{ALLOCATOR_PATH}"), "which is there"),
        (diff_of("", "x\n", "/dev/null", f"b/{ALLOCATOR_PATH}/x.py"), "lies below a file"),
        (diff_of("y\n", "x\n", "sglang/gone.py", "sglang/gone.py"), "which is not there"),
        (diff_of("y\n", "x\n", "sglang/one.py", "sglang/two.py"), "renames are not supported"),
        (diff_of(ALLOCATOR[:60], "", new="/dev/null"), "does not fit|not all of it"),
        (diff_of(ALLOCATOR, "x\n") + diff_of("x\n", "y\n"), "twice"),
        (diff_of("absent\n", "x\n"), "hunk 1 does not fit .* at line 1"),
    ],
)
def test_a_patch_that_can_not_be_used_says_where_and_why(tree, patch, why):
    with pytest.raises(TargetError, match=why) as refused:
        apply(tree, patch)
    assert "\n" not in str(refused.value)
    assert str(refused.value).startswith("fix.diff")
    assert (tree / ALLOCATOR_PATH).read_text() == ALLOCATOR
