"""`compare --base TARGET`: a target becomes an arm of the configuration, named after it."""

import pytest

from stress.command.options import with_target
from stress.config import ConfigError, load_config


def test_a_target_becomes_an_arm_and_an_arm_stays():
    config = load_config("smoke")
    both, base = with_target(config, "vllm==0.20.2", "--base", "fail")
    both, test = with_target(both, "vllm==0.33.0", "--test", "pass")
    assert (base, test) == ("vllm-0-20-2", "vllm-0-33-0")
    assert {
        name: (arm.target, arm.expect) for name, arm in both.arms.named.items() if name in (base, test)
    } == {
        base: ("vllm==0.20.2", "fail"),
        test: ("vllm==0.33.0", "pass"),
    }
    assert with_target(config, "patched", "--test", "pass") == (config, "patched")


def test_two_targets_whose_names_read_alike_are_two_arms(tmp_path):
    for name in ("a.diff", "a-.diff"):
        (tmp_path / name).write_text("")
    base, test = (f"vllm==0.33.0+{tmp_path}/{name}" for name in ("a.diff", "a-.diff"))
    both, first = with_target(load_config("smoke"), base, "--base", "fail")
    both, second = with_target(both, test, "--test", "pass")
    assert first != second
    assert (both.arms.named[first].target, both.arms.named[second].target) == (base, test)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("nope", "--base nope: config smoke has no such arm; choose unpatched, patched"),
        ("vllm==x", "--base vllm==x: target 'vllm==x': 'x' is no version; write vllm==0.33.0, for instance"),
        ("path:/no/where", "--base path:/no/where: target 'path:/no/where': '/no/where' is no folder"),
        ("vllm==0.33.0+filter", "edit 'filter' is for sglang trees; name a .diff or .patch file"),
    ],
)
def test_what_is_neither_is_refused_in_one_line(text, line):
    with pytest.raises(ConfigError) as refused:
        with_target(load_config("smoke"), text, "--base", "fail")
    assert line in str(refused.value)
    assert "\n" not in str(refused.value)
