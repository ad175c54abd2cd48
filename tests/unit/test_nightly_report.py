"""`kvstress report` of a nightly's folder: whole, under way, killed, and with parts of it gone or spoiled."""

import json
import shutil
from pathlib import Path

import pytest
from nightly_bench import failing

from stress.cli import main

MEMORY_2 = "smoke-store_memory-seed2"
COMMAND = (
    "kvstress run smoke --arm patched --set workload.requests=20 --set linker.store=memory --seed 2 "
    "--launcher inline"
)


def report(capsys, *options):
    """Exit code, stdout and stderr of a report of the folder `out`."""
    capsys.readouterr()
    code = main(["report", "out", *options])
    printed = capsys.readouterr()
    return code, printed.out, printed.err


def test_a_night_is_told_again_with_its_canary_its_runs_and_the_first_finding(night, capsys):
    night("out", **failing(2))
    code, told, _ = report(capsys)
    lines = told.splitlines()
    assert code == 0
    assert lines[0].startswith("nightly mine, seeds 1, 2, launcher inline, started 20")
    rows = {line.split()[0]: line.split()[1:] for line in lines[2:8]}
    assert (rows["run"][0], rows["canary"][:2]) == ("verdict", ["pass", "8"])
    assert rows[MEMORY_2][:6] == ["fail", "8", "0", "0", "0", "10"]
    assert rows["smoke-store_shared-seed2"][:2] == ["pass", "0"]
    at = lines.index(f"{MEMORY_2}: fail")
    assert "first finding of patched: I1 in pool swa, rank 0, operation 40, 0.9 s" in lines[at:]
    assert "    17 lent full page 391 to request 4 (linker load) [of 3]" in lines[at:]
    assert f"  {COMMAND}" in lines[at:]
    assert not any(line.startswith(("canary: ", "smoke-store_shared")) for line in lines[at:])
    assert "verdict  fail" in lines and "  The canary failed, as it must." in lines
    code, told, _ = report(capsys, "--json")
    assert (code, json.loads(told)) == (0, json.loads(Path("out/verdict.json").read_text()))


@pytest.mark.parametrize("gone", ["folder", "verdict", "whole"])
def test_a_run_whose_folder_is_gone_or_spoiled_costs_its_finding_alone(night, capsys, gone):
    night("out", **failing(2))
    if gone == "folder":
        shutil.rmtree(Path("out", MEMORY_2))
    else:
        Path("out", MEMORY_2, "verdict.json").write_text("{}" if gone == "whole" else "{")
    code, told, _ = report(capsys)
    assert (code, f"{MEMORY_2}: fail" in told, COMMAND in told) == (0, True, True)
    assert "first finding" not in told


def test_a_night_that_goes_on_or_was_killed_is_shown_as_far_as_it_came(night, capsys, monkeypatch):
    from stress.nightly import Nightly

    make, shown = Nightly._make, []

    def look(self, planned, execute):
        if planned.name == MEMORY_2:
            Path("out", MEMORY_2).mkdir()  # as it is while the run goes on
            shown.append(report(capsys))
            shown.append(report(capsys, "--json"))
        return make(self, planned, execute)

    monkeypatch.setattr(Nightly, "_make", look)
    night("out", smoke__store_memory__seed1="fail")
    (code, told, _), (code_json, document, _) = shown
    assert (code, code_json) == (3, 3)
    assert json.loads(document)["reasons"][0] == "The nightly goes on, or was killed."
    assert "The nightly goes on, or was killed." in told and "The canary failed, as it must." in told
    assert "smoke-store_memory-seed1: fail" in told
    rows = [line.split() for line in told.splitlines()]
    assert [MEMORY_2, "not", "run"] in rows
    assert f"under way  {Path('out', MEMORY_2).resolve()}" in told
    assert f"{MEMORY_2}: unknown" not in told
    code, told, _ = report(capsys)
    assert (code, "goes on" in told) == (0, False)


def test_an_interrupted_night_has_its_verdict(night, capsys):
    night("out", **failing(1, told=KeyboardInterrupt()))
    code, told, _ = report(capsys)
    assert (code, "verdict  unknown" in told) == (0, True)
    assert "The nightly was interrupted before its end." in told and "goes on" not in told


@pytest.mark.parametrize("key", ["runs", "canary", "seeds", "reasons", "history", "wall_s"])
def test_a_verdict_that_is_not_whole_is_one_line(night, capsys, key):
    night("out")
    path = Path("out/verdict.json")
    document = json.loads(path.read_text())
    for broken in ({name: value for name, value in document.items() if name != key}, {**document, key: "x"}):
        path.write_text(json.dumps(broken))
        for option in ([], ["--json"]):
            code, out, err = report(capsys, *option)
            if broken.get(key) == "x" and key in ("seeds", "reasons"):
                continue  # a text has parts, too
            assert (code, out, len(err.splitlines())) == (2, "", 1)
            assert err.startswith("kvstress: out/verdict.json: ")


def test_a_folder_of_another_version_is_told_by_its_kind_or_schema(night, capsys):
    night("out")
    path = Path("out/verdict.json")
    document = json.loads(path.read_text())
    path.write_text(json.dumps({**document, "kind": "matrix"}))
    assert report(capsys) == (1, "", "out/verdict.json: kind 'matrix', expected run or nightly or seeds\n")
    path.write_text(json.dumps({**document, "schema": 9}))
    assert report(capsys) == (1, "", "out/verdict.json: schema 9, expected 1\n")
