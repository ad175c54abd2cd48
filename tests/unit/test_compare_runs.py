"""`kvstress compare RUN_A RUN_B`: what a live compare says, from two runs that were made; nothing is started."""

import json
from pathlib import Path

import pytest

import stress.coordinator
from stress.cli import main
from stress.config import load_config
from stress.same_requests import REQUEST_KEYS, other_requests, other_settings
from stress.workload.plan import plan_of

SMALL = ["--set", "workload.requests=40", "--set", "check.require=['load_back']", "--launcher", "inline"]


def run(out, *options):
    main(["run", "smoke", *SMALL, *options, "--out", str(out)])


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Runs that were made: one arm each, both arms live, and some that do not go with them."""
    top = tmp_path_factory.mktemp("made")
    run(top / "old", "--arm", "unpatched")
    run(top / "new", "--arm", "patched")
    run(top / "larger", "--arm", "patched", "--set", "pool.swa_pages=40", "--set", "record.operations=all")
    run(top / "seed2", "--arm", "patched", "--seed", "2")
    run(top / "more", "--arm", "patched", "--set", "workload.requests=41")
    run(top / "ranks", "--arm", "patched", "--set", "layout.tp_size=1", "--set", "layout.dp_size=1")
    parallel = ["--set", "layout.tp_size=4", "--set", "layout.dp_size=4", "--set", "arms.mode=parallel"]
    ranks = ["--set", "arms.unpatched.ranks=0", "--set", "arms.patched.ranks=2-3"]
    run(top / "beside", *parallel, *ranks)
    main(["compare", "smoke", *SMALL, "--base", "unpatched", "--test", "patched", "--out", str(top / "live")])
    return top


@pytest.fixture(autouse=True)
def here(made, monkeypatch, capsys):
    """Works beside the runs; a rank that would be started is a failure."""
    monkeypatch.chdir(made)
    monkeypatch.setattr(stress.coordinator, "run_arms", None)
    capsys.readouterr()


def compared(capsys, *arguments):
    code = main(["compare", *arguments, "--json"])
    printed = capsys.readouterr()
    assert printed.err == ""
    return code, json.loads(printed.out)


def without_pids(document):
    for entry in document["arms"].values():
        for rank in entry["ranks"]:
            del rank["pid"]
    return document


def snapshot(folder):
    return {path: (path.stat().st_mtime_ns, path.is_dir()) for path in Path(folder).rglob("*")}


def test_two_runs_give_the_document_of_a_live_compare(made, capsys):
    before = snapshot(".")
    code, document = compared(capsys, "old", "new")
    assert code == 0
    live = without_pids(json.loads(Path("live/verdict.json").read_text()))
    compare = document["compare"]
    assert compare.pop("runs") == {"unpatched": str(made / "old"), "patched": str(made / "new")}
    assert compare.pop("differences") == []
    assert without_pids(document) == live
    assert document["divergence"]["why"].startswith("Equal for 6 operations, until unpatched asserted")
    assert snapshot(".") == before


def test_the_other_way_round_it_is_a_regression(capsys):
    code, document = compared(capsys, "new", "old")
    assert (code, document["compare"]["outcome"]) == (1, "not_fixed_or_regressed")
    assert list(document["arms"]) == ["patched", "unpatched"]


def test_an_arm_of_each_is_chosen_and_a_second_one_of_its_name_gets_another(capsys):
    code, document = compared(capsys, "old", "live", "--test", "patched")
    assert (code, list(document["arms"])) == (0, ["unpatched", "patched"])
    code, document = compared(capsys, "live", "new", "--base", "patched")
    assert (code, document["compare"]["outcome"]) == (4, "not_reproduced")
    assert list(document["arms"]) == ["patched", "patched~2"]
    assert document["divergence"] is None
    assert [reason.partition(":")[0] for reason in document["reasons"]] == ["Arm patched", "Arm patched~2"]


def test_what_differs_beside_the_arms_is_said(capsys):
    code, document = compared(capsys, "old", "larger")
    assert (code, document["compare"]["differences"]) == (0, ["pool.swa_pages: 26 and 40"])
    main(["compare", "old", "larger"])
    assert "\n  the runs differ in pool.swa_pages: 26 and 40\n" in capsys.readouterr().out


def test_a_document_that_is_kept_is_reported_again(capsys):
    assert main(["compare", "old", "new", "--out", "kept"]) == 0
    printed = capsys.readouterr().out
    assert "run of unpatched  " in printed
    assert printed.endswith(f"run directory  {Path('kept').resolve()}\n")
    assert main(["report", "kept"]) == 0
    assert capsys.readouterr().out == printed


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["old", "seed2"], "the runs had other requests, seed is 1 and 2;"),
        (["old", "more"], "the runs had other requests, workload.requests is 40 and 41;"),
        (["old", "ranks"], "the runs had other requests, layout.tp_size is 2 and 1;"),
        (["live", "new"], "live: holds arms unpatched, patched; choose one with --base ARM"),
        (["old", "live"], "live: holds arms unpatched, patched; choose one with --test ARM"),
        (["old", "new", "--test", "petched"], "--test petched: new has no such arm; choose patched"),
        (["old", "nowhere"], "run directory nowhere: no run here"),
        (["old", "new", "--seed", "3"], "--seed: two runs that were made are only read; leave it out"),
        (["old", "new", "--launcher", "ray"], "--launcher: two runs that were made are only read"),
        (["old", "new", "--out", "live"], "--out live: is not empty"),
        (["old"], "old: is a run; name the one to compare it with behind it, or a CONFIG"),
        (["live", "--base", "unpatched", "--test", "patched"], "live: is a run; name the one to compare"),
    ],
)
def test_a_mistake_is_one_line(capsys, arguments, told):
    assert main(["compare", *arguments]) == 2
    printed = capsys.readouterr()
    assert (printed.out, len(printed.err.splitlines())) == ("", 1)
    assert told in printed.err


def test_a_run_that_is_not_over_shows_nothing(made, capsys):
    for name, change in (
        ("killed", {"reasons": ["The run goes on, or was killed."]}),
        ("empty", {"arms": {"patched": {"verdict": "unknown", "ranks": []}}}),
    ):
        Path(name, "ranks").mkdir(parents=True)
        Path(name, "manifest.json").write_bytes(Path("new/manifest.json").read_bytes())
        document = json.loads(Path("new/verdict.json").read_text())
        Path(name, "verdict.json").write_text(json.dumps({**document, **change}))
        assert main(["compare", "old", name]) == 3
        printed = capsys.readouterr()
        assert (printed.out, len(printed.err.splitlines())) == ("", 1)
    assert "arm patched was not run" in printed.err


def test_an_arm_that_is_unknown_gives_an_unknown_outcome(capsys):
    Path("lost/ranks").mkdir(parents=True)
    Path("lost/manifest.json").write_bytes(Path("new/manifest.json").read_bytes())
    document = json.loads(Path("new/verdict.json").read_text())
    document["arms"]["patched"]["verdict"] = "unknown"
    document["reasons"] = ["The run was interrupted before its end.", "Arm patched: rank 1 lost."]
    Path("lost/verdict.json").write_text(json.dumps(document))
    code, found = compared(capsys, "old", "lost")
    assert (code, found["compare"]["outcome"]) == (3, "unknown")
    assert found["reasons"][-2:] == [
        "Run of patched: The run was interrupted before its end.",
        "Arm patched: rank 1 lost.",
    ]


def test_a_verdict_that_is_not_whole_is_one_line(capsys):
    Path("half/ranks").mkdir(parents=True)
    Path("half/manifest.json").write_bytes(Path("new/manifest.json").read_bytes())
    document = json.loads(Path("new/verdict.json").read_text())
    del document["layout"]
    Path("half/verdict.json").write_text(json.dumps(document))
    assert main(["compare", "old", "half"]) == 2
    assert "has no 'layout'; it is not whole, run again" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        (
            "verdict.json",
            '{"schema": 1, "arms": {"patched": {}}}',
            "has no 'ranks'; it is not whole, run again",
        ),
        ("verdict.json", '{"schema": 1, "arms": {"patched": 3}}', "was changed after the run, run again"),
        ("manifest.json", '{"config": 1}', "manifest.json: Expected `object`, got `int`; without it"),
        ("manifest.json", "{}", "manifest.json: has no 'config'; without it"),
    ],
)
@pytest.mark.parametrize("order", [1, -1])
def test_a_run_that_was_changed_is_one_line(tmp_path, capsys, name, text, told, order):
    changed = tmp_path / "changed"
    (changed / "ranks").mkdir(parents=True)
    for kept in ("manifest.json", "verdict.json"):
        (changed / kept).write_bytes(Path("new", kept).read_bytes())
    (changed / name).write_text(text)
    assert main(["compare", *["old", str(changed)][::order]]) == 2
    printed = capsys.readouterr()
    assert (printed.out, len(printed.err.splitlines())) == ("", 1)
    assert told in printed.err


def plan(override=None):
    config = load_config("smoke", ["workload.requests=200", *([override] if override else [])])
    made = plan_of(config)
    columns = ("rank", "after", "wait_us", "start_us", "prompt_tokens", "output_tokens", "cancel")
    return config.to_dict(), [getattr(made, column).tolist() for column in columns]


@pytest.mark.parametrize(
    ("override", "same"),
    [
        ("serving.step_base_ms=200", False),
        ("serving.accept_mean=1.5", False),
        ("serving.prefill_tokens_per_s=4000", False),
        ("serving.chunk_tokens=512", True),
        ("serving.max_running=8", True),
        ("serving.draft_tokens=3", True),
        ("pool.page_size=128", True),
        ("linker.enabled=false", True),
        ("workload.cancel_rate=0.5", False),
    ],
)
def test_the_keys_that_make_requests_are_those_that_the_plan_reads(override, same):
    (config, requests), (other_config, other_plan) = plan(), plan(override)
    assert (requests == other_plan) is same
    found = other_requests({"config": config}, {"config": other_config})
    assert (found and found[0]) == (None if same else override.partition("=")[0])
    assert {"layout.tp_size", "layout.dp_size"} < set(REQUEST_KEYS)


def test_a_trace_that_has_changed_is_other_requests():
    config = load_config("smoke").to_dict()
    base = {"config": config, "workload": {"trace": "t.jsonl", "sessions": 4}, "versions": {}}
    test = {
        **base,
        "workload": {"trace": "t.jsonl", "sessions": 5},
        "versions": {"torch": "2"},
        "commit": "ab",
    }
    assert other_requests(base, test) == ("the planned sessions", 4, 5)
    assert other_settings(base, test) == ["version of torch: None and 2", "commit of kvstress: None and ab"]


def test_an_arm_on_other_ranks_had_the_same_requests(capsys):
    """It is held to the layout that it had on its ranks, not to that of its whole run."""
    code, document = compared(capsys, "old", "beside", "--test", "patched")
    assert (code, document["compare"]["outcome"]) == (0, "reproduced_and_fixed")
    assert [(row["rank"], row["test_rank"]) for row in document["compare"]["by_rank"]] == [(0, 2), (1, 3)]
    assert document["digest"] == compared(capsys, "old", "new")[1]["digest"]
    assert main(["compare", "beside", "new", "--base", "unpatched"]) == 2
    assert "layout.tp_size is 1 and 2" in capsys.readouterr().err
