"""What a configuration is refused for: one line that names the file or the override, the key and the cure."""

import os

import pytest

from stress.config import ConfigError, blame, config_names, from_dict, load_config

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
    ("arms.patched.tree_core=rust", "arms.patched.tree_core: 'rust' chooses a core of a real SGLang"),
    ("name=a/b", "can't name a folder"),
    ("seed=-1", "give 0 or more"),
    ("seed=9223372036854775808", "give 9223372036854775807 or less"),
    ("layout.tp_size=0", "give 1 or more"),
    ("layout.dp_size=0", "give 1 or more"),
    ("layout.dp_size=3", "layout.tp_size = 8, attention TP groups would be uneven; give one of 1, 2, 4, 8"),
    ("layout.tp_size=4097", "give 4096 or less"),
    ("layout.tp_size=5", "give one of 1, 5"),
    ("layout.exchange_ms=-1", "give 0 or more"),
    ("layout.exchange_ms=1000000000001", "give 1000000000000 or less"),
    ("pool.page_size=0", "give 1 or more"),
    ("pool.window_tokens=0", "give 1 or more"),
    ("pool.page_size=65537", "give 65536 or less"),
    ("pool.full_pages=0", "give 1 or more"),
    ("pool.full_pages=2147483649", "give 2147483648 or less"),
    ("pool.swa_pages=67", "give at least 68"),
    ("pool.window_tokens=2147483649", "give 2147483648 or less"),
    ("workload.requests=0", "give 1 or more"),
    ("workload.concurrency=0", "give 1 or more"),
    ("workload.namespaces=0", "give 1 or more"),
    ("workload.duration_s=0", "give 0.000001 or more"),
    ("workload.speed=0", "give 0.001 or more"),
    ("workload.speed=nan", "is no number; give 0.001 to 1000000"),
    ("workload.speed=inf", "give 1000000 or less"),
    ("workload.requests=10000001", "give 10000000 or less"),
    ("workload.concurrency=10000001", "give 10000000 or less"),
    ("workload.namespaces=10000001", "give 10000000 or less"),
    ("workload.idle_cap_s=-1", "give 0 or more"),
    ("workload.start_within=[0.5, 0.2]", "give 0 <= first <= last <= 1"),
    ("workload.start_within=[0.5, 1.2]", "give 0 <= first <= last <= 1"),
    ("workload.start_within=[nan, 1]", "give 0 <= first <= last <= 1"),
    ("workload.start_within=[0.5]", "array"),
    ("workload.cancel_rate=1.5", "give 1 or less"),
    ("workload.cancel_rate=-0.5", "give 0 or more"),
    ("workload.trace=generated:poetry", "choose generated:agentic, generated:agentic-small"),
    ("workload.trace=/nowhere/trace.jsonl", "name a trace file"),
    ("workload.trace=/", "is a directory"),
    ('workload.trace=""', "the name is empty"),
    ("workload.trace=/dev/null", "is no regular file"),
    (f"workload.trace=/{'a' * 300}", "File name too long"),
    (f"arms.{'a' * 65}.target=reference", "use up to 64 letters"),
    ("serving.chunk_tokens=0", "give 1 or more"),
    ("serving.chunk_tokens=255", "255 is less than a page of 256 tokens (pool.page_size); give 256 or more"),
    ("serving.chunk_tokens=2147483649", "give 2147483648 or less"),
    ("serving.max_running=0", "give 1 or more"),
    ("serving.max_running=100001", "give 100000 or less"),
    ("serving.draft_tokens=-1", "give 0 or more"),
    ("serving.draft_tokens=1025", "give 1024 or less"),
    ("serving.accept_mean=0.5", "give 1 or more"),
    ("serving.policy=lifo", "choose fcfs or priority"),
    (
        "serving.policy=priority",
        "is for a target whose own scheduler decides, and arms.unpatched is reference",
    ),
    ("serving.prompt_chunk_tokens=64", "leave it out, or name one, as in vllm-scheduler==0.33.0"),
    ("linker.workers=2", "linker.workers: 2 is for a target whose own scheduler decides, and arms.unpatched"),
    ("linker.on_failed_load=later", "choose fail or recompute"),
    ("injections.lost_loads=0.5", "injections.lost_loads: 0.5 is for a target whose own scheduler decides"),
    ("injections.lost_load=0.5", "did you mean injections.lost_loads?"),
    ("injections.late_stores=2", "injections.late_stores: 2.0 is too large; give 1 or less"),
    ("serving.step_base_ms=0", "give 0.001 or more"),
    ("serving.step_base_ms=1e10", "give 1000000000 or less"),
    ("serving.prefill_tokens_per_s=-5", "give 1 or more"),
    ("serving.prefill_tokens_per_s=1e13", "give 1000000000000 or less"),
    ("linker.delay_ms=-1", "give 0 or more"),
    ("linker.delay_ms=1e10", "give 1000000000 or less"),
    (
        'linker.faults=[{kind="tardy"}]',
        "linker.faults[0].kind: 'tardy' is no transfer fault; give one of late",
    ),
    ('linker.faults=[{kind="late"}]', "linker.faults[0].delay_ms: 0 delays nothing"),
    (
        'linker.faults=[{kind="short"},{kind="failed",ranks=[0,8]}]',
        "linker.faults[1].ranks: 8: the ranks are 0 to 7",
    ),
    ('linker.faults=[{kind="failed",count=0}]', "linker.faults[0].count: 0 hits nothing"),
    ('linker.faults=[{kind="failed",after=-1}]', "linker.faults[0].after: -1 is negative"),
    ('linker.faults=[{kind="lost"}]', "give the transport's timeout, or kind lost-offload"),
    ('linker.faults=[{kid="late"}]', "did you mean linker.faults[0].kind?"),
    ("deadlines.exchange_s=0", "give 0.1 or more"),
    ("deadlines.placement_s=0", "give 0.1 or more"),
    ("deadlines.loss_s=-1", "give 0.1 or more"),
    ("deadlines.loss_s=1000001", "give 1000000 or less"),
    ("deadlines.stall_s=nan", "is no number; give 0.1 to 1000000"),
    ("deadlines.los_s=1", "did you mean deadlines.loss_s?"),
    ("check.level=4", "give 3 or less"),
    ("check.level=-1", "give 0 or more"),
    ("check.closely=0", "give 1 or more"),
    (
        "arms.mode=parallel",
        "arms.unpatched.ranks: missing, arms.mode = parallel gives each arm ranks of its own",
    ),
    ("arms.patched.ranks=0-3", "leave it out, or set arms.mode = parallel"),
    ("arms.patched.ranks=[0, 3]", "arms.patched.ranks: Expected `int | str | null`, got `array`"),
    ("arms.patched.target=other==0.5", "sglang==VERSION"),
    ("arms.patched.release=best", "choose unpatched, filter-per-call or filter-per-group"),
    ("arms.patched.fault=F99", "unknown fault 'F99'; the faults are F01"),
    ("arms.patched.fault=F01+F01", "names a fault twice"),
    ("arms.patched.fault=F01@", "is no fault; write F06"),
    ("arms.patched.fault=F01@0,8", "the ranks are 0 to 7"),
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


@pytest.mark.parametrize(
    ("overrides", "broken"),
    [
        (
            ['linker.faults=[{kind="failed",ranks=[0,1,3]}]'],
            "linker.faults[0].ranks: transfers that fail on some ranks of an attention TP group of 2 alone are agreed "
            "at an exchange every step; set layout.exchange_ms to 0",
        ),
        (
            ['linker.faults=[{kind="lost-offload"}]'],
            "linker.faults[0].delay_ms: an attention TP group waits for all its transfers",
        ),
        (
            [
                'linker.faults=[{kind="failed",ranks=[3]}]',
                "layout.exchange_ms=0",
                "arms.b.target=sglang==0.5.23",
            ],
            "linker.faults[0].ranks: sglang==0.5.23 (arms.b) does not agree on transfers",
        ),
    ],
)
def test_transfers_fail_on_a_part_of_a_group_only_where_its_ranks_agree_on_them(overrides, broken):
    with pytest.raises(ConfigError) as refused:
        load_config("seed", ["layout.dp_size=4", *overrides])
    assert broken in str(refused.value)


def test_whole_groups_may_fail_alike_at_any_exchange():
    load_config("seed", ["layout.dp_size=4", 'linker.faults=[{kind="failed",ranks=[0,1]}]'])


def test_a_real_tree_has_no_pages_of_one_token():
    with pytest.raises(
        ConfigError, match=r"pool\.page_size: 1 is another allocator in SGLang, which arms\.b is"
    ):
        load_config("seed", ["arms.b.target=sglang==0.5.23", "pool.page_size=1", "pool.swa_pages=20000"])


def test_a_tree_core_is_sglang_s_alone():
    load_config("smoke", ["arms.b.target=vllm==0.33.0"])
    with pytest.raises(ConfigError) as refused:
        load_config("smoke", ["arms.b.target=vllm==0.33.0", "arms.b.tree_core=rust"])
    assert str(refused.value).endswith(
        "arms.b.tree_core: 'rust' chooses a core of a real SGLang, and the target is vllm==0.33.0; leave it out, "
        "or name a tree, as in sglang==0.5.23"
    )


@pytest.mark.parametrize(
    ("config", "override", "told"),
    [
        (
            "lmcache",
            "linker.enabled=true",
            "linker.enabled: true, and lmcache==0.5.6 (arms.lmcache) is a pool of pages that has no linker; "
            "set linker.enabled=false",
        ),
        (
            "lmcache",
            "arms.lmcache.fault=F06",
            "arms.lmcache.fault: F06 is a fault of the reference and the target is lmcache==0.5.6; leave it out, or "
            "name an edited tree (lmcache==V+EDIT)",
        ),
        (
            "lmcache",
            "arms.lmcache.fault=F25@1",
            "arms.lmcache.fault: F25@1: the ranks are 0 to 0 (layout.tp_size)",
        ),
        (
            "smoke",
            "arms.patched.fault=F25",
            "arms.patched.fault: F25 is a fault of a client of lmcache and the target is reference; name one such as "
            "lmcache==0.5.6 as the target",
        ),
        (
            "lmcache",
            "arms.lmcache.target=lmcache==no",
            "arms.lmcache.target: target 'lmcache==no': 'no' is no version; write lmcache==0.5.6, for instance",
        ),
    ],
)
def test_a_pool_alone_has_no_linker_and_its_client_s_faults_alone(config, override, told):
    with pytest.raises(ConfigError) as refused:
        load_config(config, [override])
    assert str(refused.value) == f"--set {override}: {told}"


def test_window_pages_say_nothing_to_a_pool_alone_and_are_asked_for_beside_another_arm():
    load_config("lmcache", ["pool.swa_pages=0"])
    with pytest.raises(ConfigError, match=r"pool\.swa_pages: 0 pages can't hold one chunk"):
        load_config("lmcache", ["pool.swa_pages=0", "arms.b.target=vllm==0.33.0"])


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
    with pytest.raises(ConfigError, match=f"choose {', '.join(config_names())}, or give a path"):
        load_config("nothing")


@pytest.mark.parametrize("arms", [3, [], {"a": 3}, {"mode": {}}, {"mode": "sequence", "a": {"target": 3}}])
def test_a_misshapen_arms_table_is_refused(arms):
    with pytest.raises(ConfigError, match="arms"):
        from_dict({"name": "x", "arms": arms})


def test_a_required_mark_that_does_not_exist_is_refused():
    with pytest.raises(ConfigError, match=r"check.require: 'retract' is no mark; did you mean 'retracted'\?"):
        load_config("smoke", ['check.require=["retract"]'])


def test_every_override_that_a_broken_rule_is_about_is_named():
    with pytest.raises(ConfigError) as refused:
        load_config("seed", ["pool.page_size=64", "seed=3", "pool.page_size=512", "serving.chunk_tokens=100"])
    assert str(refused.value).startswith(
        "--set pool.page_size=512, --set serving.chunk_tokens=100: serving.chunk_tokens: 100 is less than"
    )
    with pytest.raises(ConfigError, match=r"^--set layout\.tp_size=12: layout\.dp_size: 8 does not divide"):
        load_config("seed", ["layout.tp_size=12"])
    with pytest.raises(ConfigError, match=r"^--set pool\.page_sise=3: pool\.page_sise: unknown key"):
        load_config("seed", ["pool.page_size=64", "pool.page_sise=3"])


def test_a_later_refusal_is_laid_on_the_overrides_that_it_is_about():
    told = blame("pool.full_pages: 3 pages; give 9", ["pool.full_pages=3", "seed=1"])
    assert told == "--set pool.full_pages=3: pool.full_pages: 3 pages; give 9"
    assert blame("pool.full_pages: 3 pages; give 9", ["seed=1"]) == "pool.full_pages: 3 pages; give 9"


def test_deep_nesting_is_one_line(tmp_path):
    deep = "[" * 20_000 + "]" * 20_000
    with pytest.raises(ConfigError, match="the value is nested too deeply") as refused:
        load_config("seed", [f"pool.page_size={deep}"])
    assert len(str(refused.value)) < 500
    path = tmp_path / "deep.toml"
    path.write_text(f"x = {deep}\n")
    with pytest.raises(ConfigError, match=r"deep\.toml: its values are nested too deeply"):
        load_config(str(path))


def test_a_fifo_is_not_waited_for(tmp_path):
    fifo = tmp_path / "fifo.toml"
    os.mkfifo(fifo)
    with pytest.raises(ConfigError, match=r"fifo\.toml: is no regular file"):
        load_config(str(fifo))
    with pytest.raises(ConfigError, match=r"workload\.trace: .*fifo\.toml: is no regular file"):
        load_config("smoke", [f"workload.trace={fifo}"])


def test_the_folder_is_named_for_a_relative_path_alone(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=f"none.jsonl: no such file under {tmp_path};"):
        load_config("smoke", ["workload.trace=none.jsonl"])
    with pytest.raises(ConfigError, match=r"trace: /none\.jsonl: no such file;"):
        load_config("smoke", ["workload.trace=/none.jsonl"])


def test_a_number_without_end_is_one_line(tmp_path):
    with pytest.raises(ConfigError, match="seed: Expected `int`") as refused:
        load_config("smoke", [f"seed={'9' * 5000}"])
    assert len(str(refused.value)) < 600
    path = tmp_path / "endless.toml"
    path.write_text(f"seed = {'9' * 5000}\n")
    with pytest.raises(ConfigError, match=r"endless\.toml: not TOML: Exceeds the limit"):
        load_config(str(path))


@pytest.mark.parametrize(
    "overrides", [["check.bytes_per_token=64"], ["check.bytes_per_token=12", "check.content=full"]]
)
def test_the_size_of_a_slot_needs_every_slot_and_whole_words(overrides):
    with pytest.raises(
        ConfigError, match=r"check.bytes_per_token: .* give a multiple of 8, and check.content=full"
    ):
        load_config("smoke", overrides)
