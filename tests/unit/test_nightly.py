"""A nightly through the command line, on faked ranks: order, canary, history, verdict, documents."""

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest
from nightly_bench import MATRIX, failing

from stress.cli import main
from stress.launch.contract import LaunchError

MADE = ["canary", *(f"smoke-store_{store}-seed{seed}" for seed in (1, 2) for store in ("shared", "memory"))]


def history():
    return [json.loads(line) for line in Path("kvstress-failed-seeds.jsonl").read_text().splitlines()]


def cases_of(out):
    return list(ElementTree.parse(Path(out, "junit.xml")).getroot().iter("testcase"))


def test_a_night_without_a_fault_passes_and_keeps_its_evidence(night, capsys):
    code, document, made = night("one", "--json")
    assert (code, document["verdict"], made) == (0, "pass", MADE)
    printed = capsys.readouterr()
    assert json.loads(printed.out) == document
    assert "1/5 canary: failed, as it must, " in printed.err
    assert "2/5 smoke-store_shared-seed1: pass" in printed.err
    for name in made:
        assert json.loads(Path("one", name, "verdict.json").read_text())["schema"] == 1
    assert len(cases_of("one")) == 1 + 4 * 3
    assert not [
        case for case in cases_of("one") if case.find("failure") is not None or case.find("error") is not None
    ]
    assert Path("one/summary.md").read_text().startswith("# Nightly mine: pass\n")
    assert history() == []


@pytest.mark.parametrize(
    ("canary", "runs", "code", "verdict", "reason"),
    [
        ("fail", "pass", 0, "pass", "The canary failed, as it must."),
        ("pass", "pass", 3, "unknown", "The canary passed: a run that must fail did not"),
        ("lost", "pass", 3, "unknown", "The canary showed nothing."),
        ("fail", "lost", 3, "unknown", "The canary failed, as it must."),
        ("fail", "fail", 1, "fail", "The canary failed, as it must."),
        ("pass", "fail", 1, "fail", "The canary passed"),
        (LaunchError("no room for 2 ranks"), "pass", 3, "unknown", "The canary showed nothing."),
    ],
)
def test_the_worst_verdict_with_the_canary_turned_round(night, canary, runs, code, verdict, reason, capsys):
    found, document, made = night("out", canary=canary, runs=runs)
    assert (found, document["verdict"], made) == (code, verdict, MADE)
    assert document["reasons"][1].startswith(reason)
    assert ("1/5 canary: failed, as it must, " in capsys.readouterr().err) == (canary == "fail")
    wrong = [case for case in cases_of("out") if case.find("error") is not None]
    assert bool(wrong) == (verdict == "unknown" or canary == "pass")


def test_a_canary_that_failed_with_a_lost_rank_is_unknown(night, monkeypatch):
    from fake_ranks import Ranks

    whole = Ranks._rank

    def one_lost(self, config, arm, rank, told):
        return whole(self, config, arm, rank, "lost" if arm == "unpatched" and rank == 1 else told)

    monkeypatch.setattr(Ranks, "_rank", one_lost)
    code, document, _ = night("out")
    assert (code, document["canary"]["raw_verdict"], document["canary"]["verdict"]) == (3, "fail", "unknown")
    assert document["canary"]["totals"]["ranks_lost"] == 1
    assert "no whole result of rank 1" in document["canary"]["reasons"][1]


def test_a_seed_that_failed_yesterday_runs_first_until_it_passes_twice(night):
    assert night("monday", **failing(2))[0] == 1
    assert [(line["seed"], line["set"], line["passes"]) for line in history()] == [
        (2, ["linker.store=memory", "workload.requests=20"], 0)
    ]
    first = "smoke-store_memory-seed2"
    code, document, made = night("tuesday")
    assert (code, made[:2], len(made)) == (0, [first, "canary"], 5)
    assert (document["runs"][0]["name"], document["runs"][0]["kept"]) == (first, True)
    assert [line["passes"] for line in history()] == [1]
    assert "(failed before)" in Path("tuesday/summary.md").read_text()
    code, _, made = night(
        "wednesday", **failing(2, told="lost")
    )  # shows nothing: neither a pass nor a failure
    assert (code, made[0], [line["passes"] for line in history()]) == (3, first, [1])
    night("thursday", **failing(2))  # and a failure starts the count again
    assert [line["passes"] for line in history()] == [0]
    night("friday")
    night("saturday")
    assert history() == []
    assert night("sunday")[2][0] == "canary"


def test_a_kept_seed_runs_although_tonight_has_other_seeds(night):
    night("monday", **failing(2))
    code, document, made = night("tuesday", "--seed", "77")
    assert (code, made) == (
        0,
        ["smoke-store_memory-seed2", "canary", "smoke-store_shared-seed77", "smoke-store_memory-seed77"],
    )
    assert document["seeds"] == [77]


def test_a_kept_seed_of_another_matrix_stays(night):
    other = '{"config":"smoke","arms":["patched"],"set":["pool.page_size=32"],"seed":5}\n'
    Path("mine.jsonl").write_text(other)
    code, document, made = night("out", "--history", "mine.jsonl")
    assert (code, made, document["history"]["of_other_matrices"]) == (0, MADE, 1)
    assert Path("mine.jsonl").read_text() == other
    assert "1 kept seed of other matrices" in Path("out/summary.md").read_text()


def test_a_failure_is_told_with_its_history_and_its_command(night, capsys):
    night("out", **failing(2, "shared"))
    command = (
        "kvstress run smoke --arm patched --set workload.requests=20 --set linker.store=shared "
        "--seed 2 --launcher inline"
    )
    summary = Path("out/summary.md").read_text()
    assert "## smoke-store_shared-seed2: fail" in summary
    assert "17 lent full page 391 to request 4 (linker load)" in summary
    assert f"    {command}\n" in summary
    assert command in capsys.readouterr().out
    failed = [case for case in cases_of("out") if case.find("failure") is not None]
    assert [case.get("name") for case in failed] == [
        "seed 2, arm patched, rank 0",
        "seed 2, arm patched, rank 1",
    ]
    failure = failed[0].find("failure")
    assert failure.get("type") == "finding I1"
    assert failure.get("message") == "I1 in pool swa, operation 40, 0.9 s: page 0 returned 4 times"
    assert "17 lent full page 391 to request 4 (linker load)" in failure.text


def test_a_lost_rank_is_an_error_and_no_seed_to_keep(night):
    code, _, _ = night("out", **failing(1, told="lost"))
    assert (code, history()) == (3, [])
    lost = [case for case in cases_of("out") if case.find("error") is not None]
    assert [case.find("error").get("type") for case in lost] == ["lost", "lost"]


def test_a_defect_in_one_run_costs_no_other(night, capsys):
    code, document, made = night("out", **failing(1, told=RuntimeError("broken")))
    assert (code, made) == (3, MADE)
    assert [run["verdict"] for run in document["runs"]] == ["pass", "unknown", "pass", "pass"]
    assert document["runs"][1]["reasons"] == ["Ended by RuntimeError: broken"]
    assert "Traceback" in capsys.readouterr().err
    wrong = [case for case in cases_of("out") if case.find("error") is not None]
    assert [case.get("name") for case in wrong] == ["seed 1, arm patched, all ranks"]


def test_an_interrupted_night_is_unknown_and_says_what_was_not_run(night):
    code, document, made = night("out", **failing(1, told=KeyboardInterrupt()))
    assert (code, document["verdict"], len(made)) == (130, "unknown", 3)
    assert document["reasons"][0] == "The nightly was interrupted before its end."
    assert [run["reasons"][0] for run in document["runs"][2:]] == ["It was not run."] * 2
    assert document["canary"]["verdict"] == "pass"


def test_a_night_that_is_killed_has_said_unknown_from_the_start(night, monkeypatch):
    seen = []

    def look(*_):
        seen.append(json.loads(Path("out/verdict.json").read_text()))
        seen.append(cases_of("out"))
        raise KeyboardInterrupt

    monkeypatch.setattr("stress.nightly.Nightly._make", look)
    code, document, _ = night("out")
    assert code == 130
    assert (seen[0]["verdict"], seen[0]["canary"]["reasons"]) == ("unknown", ["The canary was not run."])
    assert all(case.find("error") is not None for case in seen[1])
    assert document["canary"]["verdict"] == "unknown"


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (
            ["--out", "full"],
            "--out full: is not empty and a nightly overwrites nothing; name a new directory",
        ),
        (["--out", ""], "--out: is empty; name a new directory"),
        (["--out", "out", "--history", "full"], "history full: Is a directory; name a file with --history"),
        (["--out", "out", "--history", "bad.jsonl"], "history bad.jsonl: line 2: "),
        (["--out", "out", "--launcher", "slurm"], "'slurm' is not one of"),
        ([], "Missing option '--out'"),
    ],
)
def test_a_mistake_is_one_line_and_exit_2(ranks, capsys, options, line):
    fakes = ranks(unpatched="fail", patched="pass")
    Path("mine.toml").write_text(MATRIX)
    Path("full/x").mkdir(parents=True)
    Path("bad.jsonl").write_text('\n{"config": 3}\n')
    assert main(["nightly", "mine.toml", "--launcher", "inline", *options]) == 2
    printed = capsys.readouterr()
    assert line in printed.err
    assert (printed.out, len(printed.err.splitlines()), fakes.runs) == ("", 1, [])


def test_a_workload_that_cannot_be_planned_is_told_before_any_run(ranks, capsys):
    fakes = ranks(unpatched="fail", patched="pass")
    Path("mine.toml").write_text(
        MATRIX.replace('"linker.store" = ["shared", "memory"]', '"pool.full_pages" = 20')
    )
    assert main(["nightly", "mine.toml", "--launcher", "inline", "--out", "out"]) == 2
    told = capsys.readouterr().err
    assert told.startswith("kvstress: run smoke: --set pool.full_pages=20")
    assert (len(told.splitlines()), fakes.runs, Path("out").exists()) == (1, [], False)


def test_a_history_that_cannot_be_kept_costs_no_run(night, monkeypatch):
    from stress.record import RunWriteError

    def full(path, content):
        raise RunWriteError(f"{path}: No space left on device; free some room")

    monkeypatch.setattr("stress.nightly_history.replace_file", full)
    code, document, made = night("out", **failing(1))
    assert (code, made) == (1, MADE)
    assert "No space left" in document["history"]["problem"]
    assert "The history was not kept" in Path("out/summary.md").read_text()
