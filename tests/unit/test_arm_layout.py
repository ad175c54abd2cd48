"""Arms in parallel: which ranks they are given, which are refused, and the layout that each has there."""

import pytest

from stress.arm_layout import arm_layout, arm_ranks, parse_ranks
from stress.config import ConfigError, from_dict, load_config

PARALLEL = "arms.mode=parallel"


def parallel(unpatched, patched, *more):
    return load_config(
        "seed", [PARALLEL, f"arms.unpatched.ranks={unpatched}", f"arms.patched.ranks={patched}", *more]
    )


@pytest.mark.parametrize(
    ("text", "ranks"),
    [
        ("0-3", (0, 1, 2, 3)),
        ("0,2,4-6", (0, 2, 4, 5, 6)),
        ("6, 4-5 ,0", (0, 4, 5, 6)),
        ("7", (7,)),
        ("3-3", (3,)),
    ],
)
def test_ranges_of_ranks(text, ranks):
    assert parse_ranks(text) == ranks


@pytest.mark.parametrize(
    ("text", "cure"),
    [
        ("", 'write ranges such as "0-3"'),
        ("0-", 'write ranges such as "0-3"'),
        ("-3", 'write ranges such as "0-3"'),
        ("0;3", 'write ranges such as "0-3"'),
        ("0,,3", 'write ranges such as "0-3"'),
        ("0-99999", 'write ranges such as "0-3"'),
        ("3-0", "write 0-3"),
        ("0-3,2", "rank 2 is named twice"),
        ("\u0663", 'write ranges such as "0-3"'),  # a digit, but of another script
    ],
)
def test_what_is_no_range(text, cure):
    with pytest.raises(ValueError, match=cure):
        parse_ranks(text)


def test_each_arm_has_its_ranks_and_a_layout_of_that_size():
    config = parallel("0-3", "4,6", "layout.dp_size=4")
    assert arm_ranks(config, "unpatched") == (0, 1, 2, 3)
    assert arm_ranks(config, "patched") == (4, 6)
    whole, small = arm_layout(config, "unpatched"), arm_layout(config, "patched")
    assert (whole.tp_size, whole.dp_size, whole.attn_tp_size) == (4, 2, 2)
    assert (small.tp_size, small.dp_size, small.attn_tp_size) == (2, 1, 2)
    assert config.layout.ranks == 8
    assert from_dict(config.to_dict()) == config


def test_a_single_rank_is_a_number():
    assert arm_ranks(parallel("0-3", "5"), "patched") == (5,)


def test_in_sequence_every_arm_has_all_ranks():
    config = load_config("seed")
    assert arm_ranks(config, "patched~2") == tuple(range(8))
    assert arm_layout(config, "patched") == config.layout


@pytest.mark.parametrize(
    ("unpatched", "patched", "settings", "what"),
    [
        ("0-3", "3-7", [], "arms.patched.ranks: rank 3 is one of arms.unpatched.ranks too; give each arm"),
        (
            "0-3",
            "4-8",
            [],
            "arms.patched.ranks: there is no rank 8, layout.tp_size = 8 has 0 to 7; name those, or",
        ),
        ("0-3", "4-6", ["layout.dp_size=4"], "3 ranks can't be cut into attention TP groups of 2"),
        ("0-3", "4-", [], "arms.patched.ranks: '4-' is no rank and no range of ranks; write ranges"),
    ],
)
def test_ranks_that_do_not_fit_are_refused_in_one_line(unpatched, patched, settings, what):
    with pytest.raises(ConfigError) as refused:
        parallel(unpatched, patched, *settings)
    assert what in str(refused.value)
    assert f"--set arms.patched.ranks={patched}" in str(refused.value)
    assert "\n" not in str(refused.value)
