"""A configuration is complete, frozen, refused in one line where it is wrong, and survives a round trip."""

import msgspec
import pytest

from stress.config import ConfigError, config_names, from_dict, load_config
from stress.config_checks import GENERATED, RELEASES


@pytest.mark.parametrize("name", config_names())
def test_shipped_configurations_load_and_survive_a_round_trip(name):
    config = load_config(name)
    data = config.to_dict()
    assert config.name == name
    assert from_dict(data) == config
    assert from_dict(msgspec.json.decode(msgspec.json.encode(data))) == config


def test_the_seed_is_the_run_that_was_reported():
    config = load_config("seed")
    assert (config.layout.ranks, config.layout.attn_tp_size) == (8, 1)
    assert (config.pool.page_size, config.pool.full_pages, config.pool.swa_pages) == (256, 13266, 1326)
    assert (config.workload.requests, config.workload.duration_s, config.workload.concurrency) == (
        11450,
        3628,
        256,
    )
    assert list(config.arms.named) == ["unpatched", "patched"]
    assert config.arms.named["unpatched"].expect == "fail"
    assert len(config.check.require) == 9


def test_defaults_are_those_of_the_seed():
    seed = load_config("seed")
    data = {"name": "seed", "arms": seed.to_dict()["arms"], "layout": {"tp_size": 8, "dp_size": 8}}
    plain = from_dict(data)
    assert msgspec.structs.replace(plain, check=seed.check) == seed


def test_ranks_of_an_attention_tp_layout():
    layout = load_config("seed", ["layout.dp_size=2"]).layout
    assert layout.attn_tp_size == 4
    assert [layout.dp_rank(rank) for rank in range(8)] == [0, 0, 0, 0, 1, 1, 1, 1]
    assert [layout.attn_tp_rank(rank) for rank in range(8)] == [0, 1, 2, 3, 0, 1, 2, 3]


def test_overrides_take_toml_values_and_bare_words():
    config = load_config(
        "seed",
        [
            "pool.page_size=64",
            "workload.start_within=[0, 1]",
            "linker.enabled=false",
            "workload.speed=2",
            "arms.patched.release=filter-per-call",
            'layout.device="cpu"',
            "arms.third.target=reference",
            "arms.third.release=unpatched",
        ],
        seed=7,
    )
    assert config.pool.page_size == 64
    assert config.workload.start_within == (0.0, 1.0)
    assert config.linker.enabled is False
    assert config.workload.speed == 2.0
    assert config.arms.named["patched"].release == "filter-per-call"
    assert config.layout.device == "cpu"
    assert list(config.arms.named) == ["unpatched", "patched", "third"]
    assert config.seed == 7


def test_a_path_gives_the_name_and_a_trace_is_made_absolute(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "trace.jsonl").write_text("{}")
    arm = '[arms.a]\ntarget = "reference"\nrelease = "unpatched"\n'
    (tmp_path / "mine.toml").write_text(f'[workload]\ntrace = "trace.jsonl"\n{arm}')
    config = load_config("mine.toml")
    assert config.name == "mine"
    assert config.workload.trace == str(tmp_path / "trace.jsonl")


def test_without_a_paged_swa_pool_its_size_does_not_matter():
    assert load_config("seed", ["pool.swa_ring=true", "pool.swa_pages=0"]).pool.swa_ring


def test_records_are_frozen():
    config = load_config("seed")
    with pytest.raises(AttributeError):
        config.pool.page_size = 3


def test_what_is_checked_before_ranks_start_is_what_they_know():
    """The names are written down twice, so that a configuration is read without torch."""
    from allocator.release import RELEASE_STRATEGIES
    from stress.workload.generator import PROFILES

    assert tuple(RELEASE_STRATEGIES) == RELEASES
    assert tuple(PROFILES) == tuple(f"generated:{name}" for name in GENERATED)


def test_a_byte_order_mark_is_passed_over(tmp_path):
    path = tmp_path / "marked.toml"
    path.write_bytes(b'\xef\xbb\xbf[arms.a]\ntarget = "reference"\nrelease = "unpatched"\n')
    assert list(load_config(str(path)).arms.named) == ["a"]


def test_an_optional_choice_names_its_words():
    with pytest.raises(ConfigError, match="choose python or rust"):
        load_config("smoke", ["arms.patched.tree_core=go"])
