"""What the text report says beside the table: the exit code of a foreseen failure, marks, replays, compare."""

import json
from pathlib import Path

from stress.cli import main

SMOKE = ["smoke", "--set", "workload.requests=20", "--launcher", "inline"]
FIXTURE = Path(__file__).parents[1] / "fixtures" / "mooncake.jsonl"


def test_a_foreseen_failure_says_why_run_exits_1(ranks, capsys):
    ranks(unpatched="fail", patched="pass")
    assert main(["run", *SMOKE]) == 1
    lines = capsys.readouterr().out.splitlines()
    at = lines.index("verdict  fail (as expected)")
    assert lines[at + 1] == "  exit 1: run reports the raw verdict; compare exits 0 where its test arm passes"
    assert main(["compare", *SMOKE, "--base", "unpatched", "--test", "patched"]) == 0
    assert "exit 1" not in capsys.readouterr().out


def test_marks_that_are_not_asked_for_are_said_with_their_reason(ranks, capsys):
    ranks(patched="pass")
    main(
        [
            "run",
            *SMOKE,
            "--arm",
            "patched",
            "--set",
            "workload.cancel_rate=0",
            "--set",
            "serving.draft_tokens=0",
        ]
    )
    printed = capsys.readouterr().out
    assert "marks not asked for: cancelled (workload.cancel_rate = 0)\n" in printed
    assert "marks not asked for: spec_tail_returned (serving.draft_tokens = 0)\n" in printed
    main(["run", *SMOKE, "--arm", "patched"])
    assert "marks not asked for" not in capsys.readouterr().out


def test_a_trace_that_is_played_again_says_so(ranks, capsys):
    ranks(patched="pass")
    main(["run", *SMOKE, "--arm", "patched", "--set", f"workload.trace={FIXTURE}"])
    printed = " ".join(capsys.readouterr().out.split())
    document = json.loads(Path("runs/latest/verdict.json").read_text())
    planned = document["workload"]
    assert planned == json.loads(Path("runs/latest/manifest.json").read_text())["workload"]
    assert (planned["trace"], planned["requests_planned"], planned["sessions"]) == (str(FIXTURE), 20, 4)
    assert planned["replays"] > 0
    assert (
        f"has too few sessions for 20 requests: its 4 were played {planned['replays']} times more" in printed
    )
    main(["run", *SMOKE, "--arm", "patched"])
    assert "too few sessions" not in capsys.readouterr().out


def test_options_that_do_not_exist_yet_are_not_in_the_help(capsys):
    for command in ("run", "compare"):
        assert main([command, "--help"]) == 0
        printed = capsys.readouterr().out
        assert "--set" in printed
        assert not any(option in printed for option in ("--resume",))
