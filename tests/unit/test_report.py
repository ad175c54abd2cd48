"""`kvstress report`: old runs, runs that were killed, and folders that hold no whole result."""

import json
from pathlib import Path

import msgspec
import pytest

from stress.cli import main
from stress.command.run_record import UNDER_WAY
from stress.record import RankFile, rank_path
from stress.result import Assertion, AssertLine, Finding, FindingLine, Heartbeat, Started

SMOKE = ["smoke", "--set", "workload.requests=20", "--launcher", "inline"]
FINDING = Finding(
    rule="I1",
    pool="swa",
    operation=40,
    noticed=40,
    virtual_us=9,
    page=0,
    message="page 0 returned",
    history=["h"],
)
ASSERTION = Assertion(operation=41, virtual_us=10, where="free_group_end", message="5120 > 4096")


@pytest.fixture
def killed(ranks):
    """A run directory as a kill leaves it: a manifest, one rank's file, no verdict."""
    ranks(unpatched="pass", patched="pass")
    assert main(["run", *SMOKE, "--out", "killed"]) == 0
    Path("killed/verdict.json").unlink()
    file = RankFile(rank_path(Path("killed"), "unpatched", 1))
    file.write(Started(arm="unpatched", rank=1, pid=77, device="cpu", target="reference"))
    file.write(
        Heartbeat(
            virtual_us=2_500_000,
            operations=90,
            requests_finished=3,
            requests_cancelled=1,
            running=2,
            findings=1,
        )
    )
    file.write(FindingLine(finding=FINDING))
    file.write(AssertLine(assertion=ASSERTION))
    file.close()
    return Path("killed")


def test_a_killed_run_is_shown_from_its_ranks_files(killed, capsys):
    capsys.readouterr()
    assert main(["report", "killed", "--json"]) == 3
    document = json.loads(capsys.readouterr().out)
    assert (document["verdict"], document["as_expected"]) == ("unknown", False)
    assert document["reasons"][0].startswith("There is no verdict: the run goes on, or was killed.")
    assert list(document["arms"]) == ["unpatched"]
    (rank,) = document["arms"]["unpatched"]["ranks"]
    assert (rank["rank"], rank["status"], rank["pid"], rank["virtual_s"]) == (1, "stopped", 77, 2.5)
    assert (rank["requests_finished"], rank["asserts"], rank["findings"]) == (3, 1, {"I1": 1})
    assert rank["first_finding"]["message"] == "page 0 returned"
    assert rank["message"] == "last heartbeat at 2.5 virtual s"
    assert document["workload"]["requests_planned"] == 20
    assert main(["report", "killed"]) == 3
    assert "There is no verdict" in capsys.readouterr().out


def test_the_verdict_that_stands_while_a_run_goes_on_is_none(killed, capsys):
    (killed / "verdict.json").write_text(
        json.dumps({"schema": 1, "verdict": "unknown", "reasons": [UNDER_WAY]})
    )
    capsys.readouterr()
    assert main(["report", "killed", "--json"]) == 3
    assert json.loads(capsys.readouterr().out)["arms"]["unpatched"]["totals"]["asserts"] == 1


def test_a_killed_run_without_its_manifest_tells_nothing(killed, capsys):
    (killed / "manifest.json").unlink()
    capsys.readouterr()
    assert main(["report", "killed"]) == 2
    printed = capsys.readouterr()
    assert (printed.out, len(printed.err.splitlines())) == ("", 1)
    assert "manifest.json: No such file" in printed.err


@pytest.mark.parametrize("key", ["arms", "layout", "reasons", "coverage", "digest"])
def test_a_verdict_that_is_not_whole_is_one_line(ranks, capsys, key):
    ranks(unpatched="fail", patched="pass")
    main(["run", *SMOKE, "--out", "run"])
    path = Path("run/verdict.json")
    document = json.loads(path.read_text())
    for broken in ({name: value for name, value in document.items() if name != key}, {**document, key: 3}):
        path.write_bytes(msgspec.json.encode(broken))
        capsys.readouterr()
        if broken.get(key) == 3 and key == "digest":
            continue  # a digest is only printed
        for json_flag in ([], ["--json"]):
            assert main(["report", "run", *json_flag]) == 2
            printed = capsys.readouterr()
            assert (printed.out, len(printed.err.splitlines())) == ("", 1)
            assert printed.err.startswith("kvstress: run/verdict.json: ")


def test_the_latest_run_is_named_by_its_own_folder(ranks, capsys):
    ranks(unpatched="pass", patched="pass")
    main(["run", *SMOKE])
    capsys.readouterr()
    assert main(["report", "runs/latest"]) == 0
    last = capsys.readouterr().out.splitlines()[-1]
    assert last == f"run directory  {Path('runs/latest').resolve()}"
    assert not last.endswith("latest")
