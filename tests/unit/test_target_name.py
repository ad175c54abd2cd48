"""Names of targets: what is accepted, and what is refused in one line with the cure."""

import pytest
from target_tree import make_tree

from stress.target import TargetError, add_target, mode_of, parse_target, project_of, resolve


@pytest.mark.parametrize(
    ("text", "kind", "version", "edits"),
    [
        ("reference", "reference", "", ()),
        ("sglang", "installed", "", ()),
        ("sglang==0.5.23", "release", "0.5.23", ()),
        ("sglang==0.5.6.post1+filter", "release", "0.5.6.post1", ("filter",)),
        ("sglang==0.5.23+no-cursor+filter", "release", "0.5.23", ("no-cursor", "filter")),
    ],
)
def test_a_name_is_read_and_written_back(text, kind, version, edits):
    target = parse_target(text)
    assert (target.kind, target.version, target.edits) == (kind, version, edits)
    assert str(target) == text


@pytest.mark.parametrize(
    ("text", "project", "mode"),
    [
        ("reference", "reference", ""),
        ("sglang", "sglang", ""),
        ("sglang==0.5.23+filter", "sglang", ""),
        ("vllm==0.33.0", "vllm", ""),
        ("vllm-scheduler==0.33.0", "vllm", "scheduler"),
        ("lmcache==0.5.6rc1", "lmcache", ""),
    ],
)
def test_a_name_says_its_project_and_mode(text, project, mode):
    target = parse_target(text)
    assert (target.project, target.mode) == (project_of(text), mode_of(text)) == (project, mode)
    assert str(target) == text


@pytest.mark.parametrize("project", ["sglang", "vllm", "lmcache"])
def test_a_folder_s_project_is_what_it_holds(tmp_path, project):
    tree = make_tree(tmp_path, project)
    assert parse_target(f"path:{tree}").project == project_of(f"path:{tree}") == project
    assert project_of("path:elsewhere+gone.diff", tree) == project
    assert (mode_of(f"path:{tree}"), str(parse_target(f"path:{tree}"))) == ("", f"path:{tree}")


def test_a_rank_needs_no_patch_to_know_the_project(tmp_path):
    assert project_of("vllm-scheduler==0.33.0+gone.diff", tmp_path) == "vllm"
    with pytest.raises(TargetError, match="there is reference, sglang"):
        project_of("other==1.0", tmp_path)


def test_a_folder_of_two_projects_is_refused(tmp_path):
    make_tree(make_tree(tmp_path, "vllm"), "lmcache")
    with pytest.raises(TargetError) as refused:
        parse_target(f"path:{tmp_path}")
    assert str(refused.value) == (
        f"target 'path:{tmp_path}': holds vllm/ and lmcache/; name a folder that has one of them alone"
    )


def test_built_in_edits_are_for_sglang_alone(tmp_path):
    tree = make_tree(tmp_path, "lmcache")
    for text in ("vllm==0.33.0+filter", "vllm-scheduler==0.33.0+filter", f"path:{tree}+filter"):
        with pytest.raises(TargetError) as refused:
            parse_target(text)
        assert str(refused.value) == (
            f"target {text!r}: edit 'filter' is for sglang trees; name a .diff or .patch file"
        )


def test_a_folder_may_have_a_plus_in_its_name(tmp_path):
    plain, plus = tmp_path / "tree", tmp_path / "tree+x"
    make_tree(plain)
    make_tree(plus)
    assert parse_target(f"path:{plus}").folder == plus
    assert parse_target(f"path:{plus}+filter").edits == ("filter",)
    assert parse_target(f"path:{plain}+filter").folder == plain


@pytest.mark.parametrize(
    ("text", "cure"),
    [
        ("", "there is reference, sglang"),
        ("vllm", "there is reference, sglang"),
        ("vllm-server==0.33.0", "vllm==VERSION, vllm-scheduler==VERSION, lmcache==VERSION or path:DIR"),
        ("vllm==", "write vllm==0.33.0"),
        ("vllm-scheduler==new", "write vllm-scheduler==0.33.0"),
        ("lmcache==0.5.6; ls", "write lmcache==0.5.6"),
        ("lmcache==0.5.6+filters", "unknown edit 'filters'; name a .diff or .patch file"),
        ("vllm==0.33.0+gone.diff", "name a patch that is there"),
        ("sglang=0.5.23", "there is reference, sglang"),
        ("sglang==", "write sglang==0.5.23"),
        ("sglang==new", "write sglang==0.5.23"),
        ("sglang==0.5.23; rm -rf /", "write sglang==0.5.23"),
        ("sglang==../../x", "write sglang==0.5.23"),
        ("sglang==0.5.23+", "choose no-cursor"),
        ("sglang==0.5.23+filters", "choose no-cursor"),
        ("sglang==0.5.23+gone.diff", "name a patch that is there"),
        ("sglang+filter", "name a release"),
        ("reference+filter", "name a release"),
        ("path:", "write path:DIR"),
        ("path:/no/such/folder", "write path:DIR"),
    ],
)
def test_a_wrong_name_is_one_line_with_the_cure(text, cure):
    with pytest.raises(TargetError, match="target") as refused:
        parse_target(text)
    assert cure in str(refused.value)
    assert "\n" not in str(refused.value)


def test_what_has_no_tree_or_needs_no_adding_says_so(tmp_path):
    with pytest.raises(TargetError, match="has no tree"):
        resolve("reference")
    with pytest.raises(TargetError) as refused:
        add_target("sglang")
    assert str(refused.value) == (
        "target 'sglang': needs no adding; add sglang==VERSION, vllm==VERSION or lmcache==VERSION, or a target "
        "with an edit"
    )
    with pytest.raises(TargetError) as refused:
        resolve(f"path:{tmp_path}")
    assert str(refused.value) == (
        f"target 'path:{tmp_path}': holds no sglang/srt/mem_cache, vllm/v1/core or lmcache/v1; name the folder "
        "above sglang/, vllm/ or lmcache/"
    )
