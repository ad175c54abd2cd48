"""A nightly's matrix: every combination is named, and every mistake is one line with its path."""

import pytest

from stress.config import ConfigError, _value
from stress.nightly_matrix import load_matrix
from stress.nightly_settings import alternatives_of, label_of

CANARY = '[nightly.canary]\nconfig = "smoke"\narm = "unpatched"\n'


@pytest.fixture
def matrix(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)

    def load(text, *seeds, canary=CANARY):
        (tmp_path / "mine.toml").write_text(f"[nightly]\nseeds = [1, 2]\n{text}\n{canary}")
        return load_matrix("mine.toml", seeds)

    return load


def run(text):
    return f'[[nightly.run]]\nconfig = "smoke"\n{text}'


def test_lists_are_alternatives_and_every_combination_has_a_name(matrix):
    loaded = matrix(
        run(
            'set = { "linker.store" = ["memory", "shared"], "pool.page_size" = [64, 128], "check.level" = 1 }'
        )
    )
    assert [case.name for case in loaded.cases] == [
        "smoke-store_memory-page_size_64",
        "smoke-store_memory-page_size_128",
        "smoke-store_shared-page_size_64",
        "smoke-store_shared-page_size_128",
    ]
    first = loaded.cases[0]
    assert first.overrides == ("linker.store=memory", "pool.page_size=64", "check.level=1")
    config = first.resolve(7)
    assert (config.linker.store, config.pool.page_size, config.check.level, config.seed) == (
        "memory",
        64,
        1,
        7,
    )
    assert first.arms == ("patched",)  # the one that is expected to pass
    assert (loaded.canary.arms, loaded.canary_seed, loaded.seeds) == (("unpatched",), 1, (1, 2))


def test_a_table_is_as_good_as_a_key_with_dots(matrix):
    loaded = matrix(
        run("[nightly.run.set]\npool.page_size = [64, 128]\n[nightly.run.set.linker]\nwarm = false")
    )
    assert [case.overrides for case in loaded.cases] == [
        ("pool.page_size=64", "linker.warm=false"),
        ("pool.page_size=128", "linker.warm=false"),
    ]


def test_a_key_that_takes_a_list_has_lists_as_alternatives(matrix):
    one = matrix(
        run('set = { "check.require" = ["load_back", "cancelled"], "workload.start_within" = [0.1, 0.2] }')
    )
    assert [case.name for case in one.cases] == ["smoke"]
    assert one.cases[0].resolve(1).check.require == ["load_back", "cancelled"]
    two = matrix(run('set = { "check.require" = [[], ["load_back"]] }'))
    assert [case.name for case in two.cases] == ["smoke-require_choice1", "smoke-require_load_back"]
    assert [case.resolve(1).check.require for case in two.cases] == [[], ["load_back"]]


def test_a_value_names_a_folder_where_it_can(matrix):
    targets = '["reference", "sglang==0.5.23"]'
    loaded = matrix(
        run(f'set = {{ "arms.patched.target" = {targets}, "arms.patched.release" = "unpatched" }}')
    )
    assert [case.name for case in loaded.cases] == ["smoke-target_reference", "smoke-target_sglang-0.5.23"]
    assert loaded.cases[1].resolve(1).arms.named["patched"].target == "sglang==0.5.23"
    literals = ['"a/b"', '"a-b"', "64", '"' + "x" * 25 + '"', '"../.."']
    assert [label_of(literals, index) for index in range(5)] == [
        "choice1",
        "choice2",
        "64",
        "choice4",
        "..-..",
    ]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("shared", "shared"),
        ("true", '"true"'),
        ("inf", '"inf"'),
        ("a b", '"a b"'),
        ("1", '"1"'),
        (True, "true"),
    ],
)
def test_a_setting_is_a_bare_word_where_that_is_the_same_text(value, text):
    settings = {"workload": {"trace": value}}
    assert alternatives_of(settings, "set") == {"workload.trace": [text]}
    assert _value(text, "--set") == value


def test_keys_that_end_alike_are_named_whole(matrix):
    loaded = matrix(
        run(
            'set = { "arms.patched.release" = ["filter-per-call", "filter-per-group"], "pool.unified_kv" = true, '
            '"arms.unpatched.release" = ["unpatched", "filter-per-call"] }'
        )
    )
    assert loaded.cases[0].name == (
        "smoke-arms.patched.release_filter-per-call-arms.unpatched.release_unpatched"
    )


def test_an_arm_that_is_not_marked_is_a_canary_all_the_same(matrix):
    loaded = matrix(
        run(""),
        canary='[nightly.canary]\nconfig = "smoke"\narm = "patched"\nseed = 9\n'
        'set = { "arms.patched.release" = "unpatched" }',
    )
    config = loaded.canary.resolve(loaded.canary_seed)
    assert (config.arms.named["patched"].expect, config.seed) == ("fail", 9)


def test_seeds_of_the_command_line_replace_those_of_the_file(matrix):
    assert matrix(run(""), 40, 41).seeds == (40, 41)
    with pytest.raises(ConfigError, match="--seed: a seed is named twice"):
        matrix(run(""), 40, 40)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"mine.toml: nightly: Object missing required field `run`; add it"),
        (
            run("arm = []"),
            r"mine.toml: nightly.run\[0\].arm: unknown key; did you mean nightly.run\[0\].arms\?",
        ),
        (run("zzz = 1"), r"nightly.run\[0\].zzz: unknown key; the keys there are config, arms, set, name"),
        (run('name = "a/b"'), r"nightly.run\[0\].name: 'a/b' can't name a folder"),
        (
            run('arms = ["none"]'),
            r"nightly.run\[0\].arms: smoke has no arm 'none'; choose unpatched, patched",
        ),
        (
            run('arms = ["unpatched"]'),
            r"nightly.run\[0\].arms: unpatched is expected to fail; make it the canary",
        ),
        (run("") + run(""), r"nightly.run\[1\]: a second run would be named 'smoke'; give it a name"),
        (run('name = "canary"'), r"nightly.run\[0\]: a second run would be named 'canary'"),
        (run('set = { "pool.pages" = 3 }'), r"nightly.run\[0\]: --set pool.pages=3: pool.pages: unknown key"),
        (run('set = { "pool.page_size" = [] }'), r"nightly.run\[0\].set.pool.page_size: has no alternative"),
        (run('set = { "pool.page_size" = [64, 64] }'), r"pool.page_size: names a value twice"),
        (run('set = { "pool.page_size" = 2020-01-01 }'), r"set.pool.page_size: 2020-01-01 can't be set"),
        (run("set = { seed = 3 }"), r"nightly.run\[0\].set.seed: is no setting; name seeds in nightly.seeds"),
        (run(f'set = {{ "serving.max_running" = {list(range(1, 5002))} }}'), r"more than 10000 runs"),
        ('[[nightly.run]]\nconfig = "smok"', r"nightly.run\[0\]: config 'smok': no such name; choose"),
        (
            run("") + "[nightly.other]\na = 1",
            r"nightly.other: unknown key; the keys there are seeds, run, canary",
        ),
        ("seeds = [1]", r"mine.toml: not TOML"),
        (run("") + "[other]", r"other: unknown key; a nightly has the table \[nightly\] alone"),
    ],
)
def test_a_mistake_is_one_line_with_its_path(matrix, text, message):
    with pytest.raises(ConfigError, match=message) as caught:
        matrix(text)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("canary", "message"),
    [
        ("", r"nightly: Object missing required field `canary`; add it"),
        (CANARY.replace("unpatched", "none"), r"nightly.canary.arm: smoke has no arm 'none'; choose"),
        (CANARY + 'arms = ["a"]', r"nightly.canary.arms: unknown key; did you mean nightly.canary.arm\?"),
        (
            CANARY + 'set = { "pool.page_size" = [16, 64] }',
            r"nightly.canary.set.pool.page_size: gives alternatives",
        ),
    ],
)
def test_a_nightly_has_one_canary(matrix, canary, message):
    with pytest.raises(ConfigError, match=message):
        matrix(run(""), canary=canary)


@pytest.mark.parametrize(
    ("seeds", "message"),
    [
        ("[]", "there is no seed"),
        ("[1, 1]", "named twice"),
        ("[-1]", "out of range"),
        ("[true]", "Expected `int`"),
    ],
)
def test_seeds_are_different_integers(tmp_path, seeds, message):
    (tmp_path / "mine.toml").write_text(f"[nightly]\nseeds = {seeds}\n{run('')}\n{CANARY}")
    with pytest.raises(ConfigError, match=message):
        load_matrix(str(tmp_path / "mine.toml"))


def test_the_shipped_nightly_is_whole():
    loaded = load_matrix("nightly")
    assert [case.name for case in loaded.cases][-1] == "seed"
    assert len(loaded.cases) == 5
    assert loaded.cases[0].resolve(1).workload.requests == 800
    for name in ("nightl", "smoke"):  # that one is a run
        with pytest.raises(
            ConfigError, match=f"nightly '{name}': no such name; choose nightly, swarm, or give"
        ):
            load_matrix(name)


def test_a_file_without_the_table_is_no_nightly(tmp_path):
    path = tmp_path / "run.toml"
    path.write_text("seed = 1\n")
    with pytest.raises(ConfigError, match=r"run\.toml: nightly: missing; write \[nightly\] with seeds"):
        load_matrix(str(path))
