"""`--seeds N` of run and compare: a run a seed, and the sum of them."""

import json
import shutil
from pathlib import Path

import msgspec
import pytest

from stress.cli import main
from stress.config_limits import SEED_MAX
from stress.record import RunDirectory
from stress.seeds import NOT_RUN, UNDER_WAY

SMOKE = ["smoke", "--set", "workload.requests=20", "--launcher", "inline"]
COMPARE = ["compare", *SMOKE, "--base", "unpatched", "--test", "patched", "--out", "sum"]


def by_seed(*told):
    return dict(enumerate(told, start=1))


def sum_of(folder="sum"):
    return json.loads(Path(folder, "verdict.json").read_text())


@pytest.mark.parametrize(
    ("patched", "verdict", "code"),
    [
        (("pass", "pass", "pass"), "pass", 0),
        (("pass", "fail", "lost"), "fail", 1),
        (("pass", "lost", "pass"), "unknown", 3),
    ],
)
def test_run_exits_with_the_worst_verdict_of_its_seeds(ranks, capsys, patched, verdict, code):
    fakes = ranks(patched=by_seed(*patched))
    assert main(["run", *SMOKE, "--arm", "patched", "--seeds", "3", "--out", "sum", "--json"]) == code
    document = json.loads(capsys.readouterr().out)
    assert document == sum_of()
    assert (document["schema"], document["kind"], document["verdict"]) == (1, "seeds", verdict)
    assert [config.seed for config, _, _ in fakes.runs] == [1, 2, 3]
    for entry, told in zip(document["seeds"], patched, strict=True):
        own = json.loads(Path("sum", entry["run_dir"], "verdict.json").read_text())
        assert (entry["run_dir"], entry["seed"]) == (f"seed-{own['seed']}", own["seed"])
        assert (entry["verdict"], entry["digest"]) == (own["verdict"], own["digest"])
        assert entry["arms"] == {"patched": {"lost": "unknown"}.get(told, told)}
        finding = entry["first_finding"]
        assert (finding and (finding["arm"], finding["rank"], finding["rule"], finding["operation"])) == (
            ("patched", 0, "I1", 40) if told == "fail" else None
        )


def test_a_seed_that_shows_nothing_is_no_trial(ranks):
    ranks(patched=by_seed("fail", "lost", "pass", "pass"))
    assert main(["run", *SMOKE, "--arm", "patched", "--seeds", "4", "--out", "sum"]) == 1
    document = sum_of()
    share = document["k_of_n"]["failed"]["patched"]
    assert (share["k"], share["n"]) == (1, 3)
    assert (share["low_95"], share["high_95"]) == pytest.approx((0.0084, 0.9057), abs=0.0001)
    assert document["reasons"] == [
        "Arm patched failed in 1 of 3 seeds (95 %: 1-91 %).",
        "Seed 2: Arm patched: ranks 0, 1 lost.",
    ]


@pytest.mark.parametrize(
    ("unpatched", "patched", "outcome", "code"),
    [
        (("fail", "fail", "fail"), ("pass", "pass", "pass"), "reproduced_and_fixed", 0),
        (("fail", "pass", "pass"), ("pass", "pass", "pass"), "reproduced_and_fixed", 0),
        (("pass", "pass", "pass"), ("pass", "pass", "pass"), "not_reproduced", 4),
        (("fail", "pass", "fail"), ("pass", "pass", "lost"), "unknown", 3),
        (("pass", "lost", "fail"), ("pass", "pass", "pass"), "unknown", 3),
        (("fail", "lost", "fail"), ("pass", "fail", "lost"), "not_fixed_or_regressed", 1),
    ],
)
def test_compare_exits_with_what_all_seeds_show(ranks, capsys, unpatched, patched, outcome, code):
    ranks(unpatched=by_seed(*unpatched), patched=by_seed(*patched))
    assert main([*COMPARE, "--seeds", "3", "--json"]) == code
    document = json.loads(capsys.readouterr().out)
    assert document["compare"] == {
        "base": "unpatched",
        "test": "patched",
        "outcome": outcome,
        "exit_code": code,
    }
    counts = document["k_of_n"]
    assert counts["reproduced"]["k"] == unpatched.count("fail")
    assert counts["reproduced"]["n"] == 3 - unpatched.count("lost")
    assert (counts["fixed"]["k"], counts["fixed"]["n"]) == (patched.count("pass"), 3 - patched.count("lost"))
    assert [entry["reproduced"] for entry in document["seeds"]] == [
        {"fail": True, "pass": False, "lost": None}[told] for told in unpatched
    ]


def test_the_text_says_how_often_and_with_what_bounds(ranks, capsys):
    ranks(unpatched=by_seed(*["fail"] * 7, *["pass"] * 3), patched="pass")
    assert main([*COMPARE, "--seeds", "10"]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("config smoke, seeds 1-10, launcher inline\n")
    assert "   7  fail       pass     reproduced and fixed  I1 in swa, rank 0, operation 40\n" in printed
    assert "  10  pass       pass     not reproduced " in printed
    told = "Reproduced in 7 of 10 seeds (95 %: 35-93 %), fixed in 10 of 10 seeds (95 %: 69-100 %)."
    assert told in printed
    words = " ".join(printed.split())
    assert "p = 0.0031 between the arms' failing seeds: 7 of 10 of unpatched, 0 of 10 of patched." in words
    assert (
        "compare  base unpatched, test patched: reproduced and fixed (reproduced on 7 of 10 seeds)\n"
        in printed
    )
    assert main(["report", "sum"]) == 0
    assert capsys.readouterr().out == printed


def test_one_seed_has_the_shape_of_many(ranks, capsys):
    ranks(patched="pass")
    assert main(["run", *SMOKE, "--arm", "patched", "--seeds", "1", "--seed", "9", "--out", "sum"]) == 0
    assert capsys.readouterr().out.startswith("config smoke, seed 9, launcher inline\n")
    assert [entry["run_dir"] for entry in sum_of()["seeds"]] == ["seed-9"]
    assert main(["report", "sum/seed-9"]) == 0


def test_without_out_the_folder_is_the_latest_run(ranks):
    ranks(patched="pass")
    assert main(["run", *SMOKE, "--arm", "patched", "--seeds", "2"]) == 0
    assert sum_of("runs/latest")["kind"] == "seeds"
    assert sorted(path.name for path in Path("runs/latest").iterdir()) == ["seed-1", "seed-2", "verdict.json"]


def test_the_sum_is_there_from_the_start_and_grows_seed_by_seed(ranks, capsys, monkeypatch):
    fakes = ranks(patched="pass")
    seen = []
    fakes_call = type(fakes).__call__

    def looking(self, *arguments, **options):
        seen.append(sum_of())
        shutil.copytree("sum", f"killed{len(seen)}")
        return fakes_call(self, *arguments, **options)

    monkeypatch.setattr(type(fakes), "__call__", looking)
    assert main(["run", *SMOKE, "--arm", "patched", "--seeds", "2", "--out", "sum"]) == 0
    assert [document["verdict"] for document in seen] == ["unknown", "unknown"]
    assert [document["reasons"][0] for document in seen] == [UNDER_WAY, UNDER_WAY]
    assert [[entry["verdict"] for entry in document["seeds"]] for document in seen] == [
        ["unknown", "unknown"],
        ["pass", "unknown"],
    ]
    capsys.readouterr()
    assert main(["report", "killed2"]) == 3
    printed = capsys.readouterr().out
    assert UNDER_WAY in printed and "   2           not over, see seed-2" in printed
    assert main(["report", "killed1"]) == 3
    printed = capsys.readouterr().out
    assert "   1           not over, see seed-1" in printed
    assert "   2           not run" in printed


def test_ctrl_c_keeps_what_was_gathered(ranks, capsys):
    ranks(unpatched="fail", patched=by_seed("pass", KeyboardInterrupt(), "pass"))
    assert main([*COMPARE, "--seeds", "3", "--json"]) == 130
    document = json.loads(capsys.readouterr().out)
    assert document == sum_of()
    assert (document["verdict"], document["as_expected"]) == ("unknown", False)
    assert document["reasons"][0] == "The run was interrupted before its end."
    first, second, third = document["seeds"]
    assert (first["outcome"], second["outcome"], third["outcome"]) == (
        "reproduced_and_fixed",
        "unknown",
        None,
    )
    assert (second["reproduced"], second["fixed"]) == (True, None)
    assert (third["run_dir"], third["doubts"]) == (None, [NOT_RUN])
    assert not Path("sum/seed-3").exists()


def test_an_interruption_between_two_seeds_is_written_down_too(ranks, capsys, monkeypatch):
    """The user's signal may come while the sum is written: before the first seed, or after one."""
    write = RunDirectory.write_verdict
    for number, verdicts in ((1, ["unknown", "unknown"]), (2, ["pass", "unknown"])):
        ranks(patched="pass")
        sums = []

        def interrupted(run, document, sums=sums, number=number):
            if document.get("kind") == "seeds":
                sums.append(document)
                if len(sums) == number:
                    raise KeyboardInterrupt
            return write(run, document)

        monkeypatch.setattr(RunDirectory, "write_verdict", interrupted)
        out = f"sum{number}"
        assert main(["run", *SMOKE, "--arm", "patched", "--seeds", "2", "--out", out, "--json"]) == 130
        document = json.loads(capsys.readouterr().out)
        assert document == sum_of(out)
        assert document["reasons"][0] == "The run was interrupted before its end."
        assert [entry["verdict"] for entry in document["seeds"]] == verdicts


def test_a_defect_in_one_seed_is_written_down(ranks, capsys):
    ranks(patched=by_seed("pass", KeyError("ours")))
    assert main(["run", *SMOKE, "--arm", "patched", "--seeds", "2", "--out", "sum"]) == 3
    assert "KeyError: 'ours'" in capsys.readouterr().err
    assert sum_of()["reasons"][0] == "The run of seed 2 was ended by an error: KeyError: 'ours'"
    assert sum_of()["seeds"][0]["verdict"] == "pass"


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--seeds", "0"], "--seeds"),
        (["--seeds", "2", "--verify-determinism"], "--verify-determinism: is for one seed"),
        (["--seeds", "2", "--seed", str(SEED_MAX)], f"the last seed would be {SEED_MAX + 1}"),
        (["--seeds", "2", "--set", "workload.trace=nowhere.jsonl"], "nowhere.jsonl"),
        # The longest request of seed 1 takes 84 pages, that of seed 2 takes 95.
        (["--seeds", "3", "--set", "pool.full_pages=91"], "seed 2: --set pool.full_pages=91"),
    ],
)
def test_a_mistake_of_any_seed_is_one_line_before_anything_starts(ranks, capsys, options, told):
    fakes = ranks(patched="pass")
    assert main(["run", *SMOKE, "--arm", "patched", *options, "--out", "sum"]) == 2
    printed = capsys.readouterr()
    assert (printed.out, len(printed.err.splitlines())) == ("", 1)
    assert told in printed.err
    assert fakes.runs == []
    assert not Path("sum").exists()


def test_a_sum_that_is_not_whole_is_one_line(ranks, capsys):
    ranks(patched="pass")
    main(["run", *SMOKE, "--arm", "patched", "--seeds", "2", "--out", "sum"])
    document = sum_of()
    for key in ("seeds", "arms", "reasons", "config"):
        broken = {name: value for name, value in document.items() if name != key}
        Path("sum/verdict.json").write_bytes(msgspec.json.encode(broken))
        capsys.readouterr()
        assert main(["report", "sum"]) == 2
        assert f"has no '{key}'; it is not whole" in capsys.readouterr().err


def test_each_seed_is_the_run_that_it_would_be_alone(tmp_path, capsys, monkeypatch):
    """Real ranks: the smoke run, inline."""
    monkeypatch.chdir(tmp_path)
    small = ["smoke", "--set", "workload.requests=40", "--set", "check.require=[]", "--launcher", "inline"]
    arms = ["--base", "unpatched", "--test", "patched"]
    assert main(["compare", *small, *arms, "--seeds", "2", "--out", "sum"]) == 0
    assert main(["compare", *small, *arms, "--seed", "2", "--out", "alone"]) == 0
    first, second = sum_of()["seeds"]
    assert second["digest"] == json.loads(Path("alone/verdict.json").read_text())["digest"] != first["digest"]
    assert first["first_finding"]["message"].startswith("page 0 returned")
    capsys.readouterr()
