"""The command line as scripts see it: exit codes, one line for a mistake, one JSON document on stdout.

Ranks are faked where the verdict is what matters; configuration, plan, run directory and verdict are real.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from fake_ranks import FINDING

from stress.cli import main
from stress.config import from_dict
from stress.launch.contract import LaunchError

ROOT = Path(__file__).resolve().parents[2]
SMOKE = ["smoke", "--set", "workload.requests=20", "--launcher", "inline"]


def last_run():
    return json.loads(Path("runs/latest/verdict.json").read_text())


@pytest.mark.parametrize(
    ("arms", "code"),
    [
        ({"unpatched": "pass", "patched": "pass"}, 0),
        ({"unpatched": "fail", "patched": "pass"}, 1),
        ({"unpatched": "pass", "patched": "lost"}, 3),
        ({"unpatched": "fail", "patched": "lost"}, 1),
    ],
)
def test_run_exits_with_its_verdict(ranks, capsys, arms, code):
    fakes = ranks(**arms)
    assert main(["run", *SMOKE]) == code
    assert fakes.launcher.closed == 1
    assert {0: "pass", 1: "fail", 3: "unknown"}[code] == last_run()["verdict"]
    printed = capsys.readouterr().out
    assert "run directory" in printed
    assert max(map(len, printed.splitlines()[:-1])) <= 100
    manifest = json.loads(Path("runs/latest/manifest.json").read_text())
    assert manifest["config"]["workload"]["requests"] == 20
    assert manifest["devices"] == ["cpu", "cpu"]


def test_the_report_shows_the_finding_and_its_history(ranks, capsys):
    ranks(unpatched="fail", patched="pass")
    main(["run", *SMOKE])
    printed = capsys.readouterr().out
    assert "first finding of unpatched: I1 in pool swa, rank 0, operation 40, 0.9 s" in printed
    assert FINDING.history[0] in printed
    assert main(["report", "runs/latest"]) == 0
    again = capsys.readouterr().out
    assert again.splitlines()[:-1] == printed.splitlines()[:-1]


def test_json_is_one_document_and_the_file_is_the_same(ranks, capsys):
    ranks(unpatched="fail", patched="pass")
    assert main(["run", *SMOKE, "--json", "--out", "there"]) == 1
    printed = capsys.readouterr()
    document = json.loads(printed.out)
    assert document == json.loads(Path("there/verdict.json").read_text())
    assert document["as_expected"] is True
    assert main(["report", "there", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == document


def test_arms_are_chosen_and_keep_their_order(ranks):
    fakes = ranks(unpatched="pass", patched="pass")
    main(["run", *SMOKE, "--arm", "patched"])
    main(["run", *SMOKE, "--arm", "patched", "--arm", "unpatched", "--seed", "9"])
    assert [arms for _, arms, _ in fakes.runs] == [["patched"], ["unpatched", "patched"]]
    assert [config.seed for config, _, _ in fakes.runs] == [1, 9]


@pytest.mark.parametrize(
    ("arms", "code", "outcome"),
    [
        ({"unpatched": "fail", "patched": "pass"}, 0, "reproduced_and_fixed"),
        ({"unpatched": "fail", "patched": "fail"}, 1, "not_fixed_or_regressed"),
        ({"unpatched": "fail", "patched": "lost"}, 3, "unknown"),
        ({"unpatched": "pass", "patched": "pass"}, 4, "not_reproduced"),
    ],
)
def test_compare_exits_with_its_outcome(ranks, capsys, arms, code, outcome):
    ranks(**arms)
    assert main(["compare", *SMOKE, "--base", "unpatched", "--test", "patched", "--json"]) == code
    compared = json.loads(capsys.readouterr().out)["compare"]
    assert (compared["outcome"], compared["exit_code"]) == (outcome, code)
    assert [row["rank"] for row in compared["by_rank"]] == [0, 1]
    assert last_run()["compare"] == compared


def test_an_arm_is_compared_with_itself_under_a_second_name(ranks, capsys):
    fakes = ranks(patched="pass", patched__2="pass")
    assert main(["compare", *SMOKE, "--base", "patched", "--test", "patched", "--json"]) == 4
    document = json.loads(capsys.readouterr().out)
    assert list(document["arms"]) == ["patched", "patched~2"]
    config, arms, _ = fakes.runs[0]
    assert arms == list(config.arms.named) == ["patched", "patched~2"]
    assert from_dict(config.to_dict()) == config


def test_two_equal_runs_are_deterministic(ranks, capsys):
    fakes = ranks(patched="pass")
    assert main(["run", *SMOKE, "--arm", "patched", "--verify-determinism", "--json"]) == 0
    printed = capsys.readouterr()
    document = json.loads(printed.out)
    assert document["determinism"]["equal"] is True
    assert printed.err.count(document["digest"]) == 2
    assert [run_dir.path.name for _, _, run_dir in fakes.runs][1] == "again"
    assert last_run()["determinism"] == document["determinism"]


def test_two_runs_that_differ_are_unknown(ranks, capsys):
    ranks(patched="random")
    assert main(["run", *SMOKE, "--arm", "patched", "--verify-determinism"]) == 3
    first, second = last_run()["determinism"]["digests"]
    assert first != second
    assert f"{first} and {second}" in capsys.readouterr().out


def test_ctrl_c_writes_what_was_gathered(ranks, capsys):
    fakes = ranks(unpatched="fail", patched=KeyboardInterrupt())
    assert main(["run", *SMOKE, "--json"]) == 130
    document = json.loads(capsys.readouterr().out)
    assert (document["verdict"], document["as_expected"]) == ("unknown", False)
    assert document["arms"]["unpatched"]["totals"]["findings"] == 8
    assert last_run() == document
    assert fakes.launcher.closed == 1


def test_a_machine_without_room_is_one_line_and_a_verdict(ranks, capsys):
    ranks(unpatched=LaunchError("8 GPUs wanted,\n2 there; lower layout.tp_size"))
    assert main(["run", *SMOKE, "--json"]) == 3
    printed = capsys.readouterr()
    assert printed.err.splitlines()[-1].endswith("8 GPUs wanted, 2 there; lower layout.tp_size")
    assert json.loads(printed.out) == last_run()
    assert last_run()["verdict"] == "unknown"


def test_an_arm_that_cannot_be_started_costs_no_earlier_arm(ranks, capsys):
    ranks(unpatched="fail", patched=LaunchError("2 GPUs wanted, 1 there; add GPUs"))
    assert main(["run", *SMOKE, "--json"]) == 3
    document = json.loads(capsys.readouterr().out)
    assert document["verdict"] == "unknown"
    assert document["reasons"][0] == ("Arm patched could not be started: 2 GPUs wanted, 1 there; add GPUs")
    assert (
        document["arms"]["unpatched"]["verdict"],
        document["arms"]["unpatched"]["totals"]["findings"],
    ) == (
        "fail",
        8,
    )
    assert document["arms"]["patched"]["ranks"] == []
    assert last_run() == document


def test_a_defect_is_no_verdict(ranks, capsys):
    ranks(unpatched=KeyError("ours"))
    assert main(["run", *SMOKE]) == 3
    assert "KeyError: 'ours'" in capsys.readouterr().err


def test_a_defect_in_a_later_arm_costs_no_earlier_arm(ranks, capsys):
    ranks(unpatched="fail", patched=KeyError("ours"))
    assert main(["run", *SMOKE]) == 3
    assert "KeyError: 'ours'" in capsys.readouterr().err
    assert last_run()["verdict"] == "unknown"
    assert last_run()["reasons"][0] == "The run was ended by an error: KeyError: 'ours'"
    assert last_run()["arms"]["unpatched"]["totals"]["findings"] == 8


def test_repro_is_as_promised(capsys):
    assert main(["repro", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    rows = {(row["release"], row["scenario"]): row for row in document["rows"]}
    assert document["schema"] == 1
    assert len(rows) == len(document["rows"])
    bogus = rows["unpatched", "no_peers"]
    assert bogus == {
        "target": "reference",
        "release": "unpatched",
        "scenario": "no_peers",
        "freed": [0, 0, 0, 0],
        "available": 5120,
        "size": 4096,
        "outcome": "assert",
    }
    half = rows["unpatched", "half_evicted"]
    assert (half["freed"], half["available"], half["outcome"]) == ([1, 2, 0, 0], 4608, "assert")
    for release in ("filter-per-call", "filter-per-group"):
        freed = [rows[release, scenario]["freed"] for scenario in ("all_mapped", "no_peers", "half_evicted")]
        assert freed == [[1, 2, 3, 4], [], [1, 2]]
    assert main(["repro"]) == 0
    assert "[1, 2, 0, 0]" in capsys.readouterr().out


def test_repro_that_is_not_as_promised_exits_1(monkeypatch, capsys):
    from allocator.release import RELEASE_STRATEGIES

    monkeypatch.setattr(
        RELEASE_STRATEGIES["unpatched"], "flush", RELEASE_STRATEGIES["filter-per-group"].flush
    )
    assert main(["repro"]) == 1
    assert "NO" in capsys.readouterr().out


def test_a_report_of_another_schema_is_said_to_be_one(tmp_path, capsys):
    (tmp_path / "ranks").mkdir()
    (tmp_path / "verdict.json").write_text('{"schema": 99}')
    assert main(["report", str(tmp_path)]) == 1
    assert "schema 99" in capsys.readouterr().err


def test_python_dash_m():
    done = subprocess.run(
        [sys.executable, "-m", "stress", "run", "--nothing"],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        timeout=60,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("kvstress run: No such option")


def test_an_interruption_before_the_first_rank_is_written_down_too(ranks, capsys, monkeypatch):
    """Between the verdict that a run goes on and the first rank, torch is imported: seconds."""
    from stress.command.run_record import RunRecord

    fakes, begin = ranks(unpatched="fail", patched="pass"), RunRecord.begin

    def interrupted(self):
        begin(self)
        raise KeyboardInterrupt

    monkeypatch.setattr(RunRecord, "begin", interrupted)
    assert main(["run", *SMOKE, "--out", "run", "--json"]) == 130
    document = json.loads(Path("run/verdict.json").read_text())
    assert json.loads(capsys.readouterr().out) == document
    assert (document["verdict"], document["reasons"][0]) == (
        "unknown",
        "The run was interrupted before its end.",
    )
    assert fakes.runs == []
