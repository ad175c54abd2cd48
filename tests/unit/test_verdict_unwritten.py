"""A disk that is full at the end of a run costs the file, and not what the run has found."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from stress.cli import main
from stress.record import RunDirectory, RunWriteError


@pytest.fixture
def full_at_the_end(monkeypatch):
    """From the second verdict on nothing can be written."""
    written = []
    write = RunDirectory.write_verdict

    def write_once(self, verdict):
        written.append(verdict["verdict"])
        if len(written) > 1:
            raise RunWriteError("out/verdict.json: No space left on device; free some room")
        return write(self, verdict)

    monkeypatch.setattr(RunDirectory, "write_verdict", write_once)


def test_a_second_run_that_can_not_be_told_of_does_not_hide_the_first(ranks, monkeypatch, capsys):
    write, written = RunDirectory.write_verdict, []

    def write_four(self, verdict):
        """Two runs, each at its start and its end; what fails is the word about both."""
        written.append(self.path)
        if len(written) > 4:
            raise RunWriteError("out/verdict.json: No space left on device; free some room")
        return write(self, verdict)

    monkeypatch.setattr(RunDirectory, "write_verdict", write_four)
    ranks(unpatched="fail")
    command = ["run", "smoke", "--arm", "unpatched", "--verify-determinism"]
    assert main([*command, "--launcher", "inline", "--out", "out", "--json"]) == 3
    assert json.loads(capsys.readouterr().out)["determinism"]["equal"]
    assert len(written) == 5


@pytest.mark.parametrize(
    "command",
    [
        ["run", "smoke", "--arm", "unpatched"],
        ["compare", "smoke", "--base", "unpatched", "--test", "patched"],
    ],
    ids=lambda command: command[0],
)
def test_the_result_is_shown_and_the_code_says_that_it_is_not_on_record(
    ranks, full_at_the_end, capsys, command
):
    ranks(unpatched="fail", patched="pass")
    assert main([*command, "--launcher", "inline", "--out", "out", "--json"]) == 3
    told = capsys.readouterr()
    document = json.loads(told.out)
    assert document["arms"]["unpatched"]["verdict"] == "fail"
    assert told.err.splitlines()[-1] == "kvstress: out/verdict.json: No space left on device; free some room"
    assert json.loads(Path("out/verdict.json").read_text())["verdict"] == "unknown"
