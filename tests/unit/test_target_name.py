"""Names of targets: what is accepted, and what is refused in one line with the cure."""

import pytest

from stress.target import TargetError, add_target, parse_target, resolve


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


def test_a_folder_may_have_a_plus_in_its_name(tmp_path):
    plain, plus = tmp_path / "tree", tmp_path / "tree+x"
    plain.mkdir()
    plus.mkdir()
    assert parse_target(f"path:{plus}").folder == plus
    assert parse_target(f"path:{plus}+filter").edits == ("filter",)
    assert parse_target(f"path:{plain}+filter").folder == plain


@pytest.mark.parametrize(
    ("text", "cure"),
    [
        ("", "there is reference, sglang"),
        ("vllm==0.1", "there is reference, sglang"),
        ("lmcache==0.1", "there is reference, sglang"),
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
    with pytest.raises(TargetError, match="needs no adding"):
        add_target("sglang")
    with pytest.raises(TargetError, match="name the folder above"):
        resolve(f"path:{tmp_path}")
