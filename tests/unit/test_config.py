"""A configuration is complete, frozen, refused in one line where it is wrong, and survives a round trip."""

import msgspec
import pytest

from stress.config import Config, ConfigError, config_names, from_dict, load_config
from stress.config_checks import GENERATED, RELEASES, pages_needed


@pytest.mark.parametrize("name", config_names())
def test_shipped_configurations_load_and_survive_a_round_trip(name):
    config = load_config(name)
    data = config.to_dict()
    assert config.name == name
    assert from_dict(data) == config
    assert Config.from_dict(msgspec.json.decode(msgspec.json.encode(data))) == config


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


REFUSED = [
    ("nonsense", "--set table.key=value"),
    ("=3", "--set table.key=value"),
    ("pool.page_size=", "--set table.key=value"),
    ("pool..page_size=3", "--set table.key=value"),
    ("pool.page_size=[1", "not TOML"),
    ("pool.page_size=1\nseed=2", "not TOML"),
    ("pool.page_sise=64", "did you mean pool.page_size?"),
    ("pol.page_size=64", "did you mean pool?"),
    ("arms.patched.relase=unpatched", "did you mean arms.patched.release?"),
    ("pool=3", "expected a table"),
    ("name.x=3", "is a value, not a table"),
    ("seed.x=3", "is a value, not a table"),
    ("pool.page_size=x", "Expected `int`, got `str`"),
    ("workload.requests=true", "Expected `int`, got `bool`"),
    ("workload.loop=half", "choose closed or open"),
    ("workload.on_bad_row=ignore", "choose fail or skip"),
    ("linker.store=disk", "choose memory or shared"),
    ("check.on_assert=wait", "choose stop or count"),
    ("record.operations=some", "choose none or ring or all"),
    ("layout.device=tpu", "choose auto or cpu or cuda"),
    ("arms.patched.expect=maybe", "choose pass or fail"),
    ("name=a/b", "can't name a folder"),
    ("seed=-1", "out of range"),
    ("layout.tp_size=0", "give 1 or more"),
    ("layout.dp_size=0", "give 1 or more"),
    ("layout.dp_size=3", "give one of 1, 2, 4, 8"),
    ("layout.exchange_ms=-1", "give 0 or more"),
    ("pool.page_size=0", "give 1 or more"),
    ("pool.window_tokens=0", "give 1 or more"),
    ("pool.full_pages=3", "give at least 66"),
    ("pool.swa_pages=65", "give at least 66"),
    ("workload.requests=0", "give 1 or more"),
    ("workload.concurrency=0", "give 1 or more"),
    ("workload.namespaces=0", "give 1 or more"),
    ("workload.duration_s=0", "give one above 0"),
    ("workload.speed=0", "give one above 0"),
    ("workload.speed=nan", "give one above 0"),
    ("workload.speed=inf", "give one above 0"),
    ("workload.idle_cap_s=-1", "give 0 or more"),
    ("workload.start_within=[0.5, 0.2]", "give 0 <= first <= last <= 1"),
    ("workload.start_within=[0.5, 1.2]", "give 0 <= first <= last <= 1"),
    ("workload.start_within=[nan, 1]", "give 0 <= first <= last <= 1"),
    ("workload.start_within=[0.5]", "array"),
    ("workload.cancel_rate=1.5", "give 0 to 1"),
    ("workload.trace=generated:poetry", "choose generated:agentic, generated:agentic-small"),
    ("workload.trace=/nowhere/trace.jsonl", "name a trace file"),
    ("workload.trace=/", "is a directory"),
    ("serving.chunk_tokens=0", "give 1 or more"),
    ("serving.max_running=0", "give 1 or more"),
    ("serving.draft_tokens=-1", "give 0 or more"),
    ("serving.accept_mean=0.5", "give 1 or more"),
    ("serving.step_base_ms=0", "give one above 0"),
    ("serving.prefill_tokens_per_s=-5", "give one above 0"),
    ("linker.delay_ms=-1", "give 0 or more"),
    ('linker.faults=[{kind="late"}]', "no transfer fault yet"),
    ('linker.faults=[{kid="late"}]', "did you mean linker.faults[0].kind?"),
    ("check.level=4", "give 0, 1, 2 or 3"),
    ("arms.mode=parallel", 'write mode = "sequence"'),
    ("arms.patched.target=vllm==0.5", "sglang==VERSION"),
    ("arms.patched.release=best", "choose unpatched, filter-per-call or filter-per-group"),
    ("arms.patched.fault=F01", "no named fault exists yet"),
    ("arms.third.release=unpatched", "missing required field `target`"),
]


@pytest.mark.parametrize(("override", "cure"), REFUSED)
def test_a_wrong_override_is_refused_in_one_line_with_its_cure(override, cure):
    with pytest.raises(ConfigError) as refused:
        load_config("seed", [override])
    message = str(refused.value)
    assert cure in message
    assert message.startswith(f"--set {' '.join(override.split())}: ")
    assert "\n" not in message


def test_a_new_arm_needs_its_release():
    with pytest.raises(ConfigError, match=r"arms\.third\.release: missing; choose unpatched"):
        load_config("seed", ["arms.third.target=reference"])


def test_a_file_is_named_with_the_key_that_is_wrong(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text('[pool]\npage_size = "big"\n[arms.a]\ntarget = "reference"\nrelease = "unpatched"\n')
    with pytest.raises(ConfigError, match=r"mine.toml: pool.page_size: Expected `int`, got `str`"):
        load_config(str(path))
    path.write_text("[pool\n")
    with pytest.raises(ConfigError, match=r"mine\.toml: not TOML"):
        load_config(str(path))
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match=r"mine\.toml: not TOML"):
        load_config(str(path))
    path.write_text("")
    with pytest.raises(ConfigError, match="arms: there is none"):
        load_config(str(path))
    with pytest.raises(ConfigError, match="name a readable TOML file"):
        load_config(str(tmp_path / "none.toml"))
    with pytest.raises(ConfigError, match="choose seed, smoke"):
        load_config("nothing")


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


def test_the_smallest_pool_that_is_taken_is_the_one_that_the_message_names():
    config = load_config("seed")
    pages = pages_needed(config.pool, config.serving)
    assert load_config("seed", [f"pool.swa_pages={pages}"]).pool.swa_pages == pages


def test_records_are_frozen():
    config = load_config("seed")
    with pytest.raises(AttributeError):
        config.pool.page_size = 3


@pytest.mark.parametrize("arms", [3, [], {"a": 3}, {"mode": {}}, {"mode": "sequence", "a": {"target": 3}}])
def test_a_misshapen_arms_table_is_refused(arms):
    with pytest.raises(ConfigError, match="arms"):
        from_dict({"name": "x", "arms": arms})


def test_what_is_checked_before_ranks_start_is_what_they_know():
    """The names are written down twice, so that a configuration is read without torch."""
    from allocator.release import RELEASE_STRATEGIES
    from stress.workload.generator import PROFILES

    assert tuple(RELEASE_STRATEGIES) == RELEASES
    assert tuple(PROFILES) == tuple(f"generated:{name}" for name in GENERATED)


def test_a_required_mark_that_does_not_exist_is_refused():
    with pytest.raises(ConfigError, match=r"check.require: 'retract' is no mark; did you mean 'retracted'\?"):
        load_config("smoke", ['check.require=["retract"]'])
