"""Standard output whose reader leaves costs no exit code; one that is full is one line, and exit 3."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
COMMAND = [sys.executable, "-m", "stress", "trace", "info", str(ROOT / "tests/fixtures/mooncake.jsonl")]


def ended(stdout=subprocess.PIPE, stderr=subprocess.PIPE, command=COMMAND):
    return subprocess.run(command, cwd=ROOT, stdout=stdout, stderr=stderr, text=True, check=False)


@pytest.fixture
def left():
    """A pipe whose reader has gone."""
    reader, writer = os.pipe()
    os.close(reader)
    yield writer
    os.close(writer)


def test_a_reader_that_left_costs_no_exit_code(left):
    assert "requests" in ended().stdout
    one = ended(stdout=left)
    assert (one.returncode, one.stderr) == (0, "")
    wrong = [*COMMAND[:-1], "nowhere.jsonl"]
    assert ended(stdout=left, command=wrong).returncode == 2
    assert ended(stderr=left, command=wrong).returncode == 2
    assert ended(stdout=left, stderr=left).returncode == 0


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_a_full_disk_is_one_line():
    with open("/dev/full", "w") as full:
        one = ended(stdout=full)
        assert one.returncode == 3
        assert one.stderr.splitlines() == [
            "kvstress: standard output: No space left on device; free some space, or write elsewhere"
        ]
        assert ended(stderr=full, command=[*COMMAND[:-1], "nowhere.jsonl"]).returncode == 2


def test_a_stream_that_was_closed_is_left_alone():
    shell = ["sh", "-c", 'exec "$@" >&-', "sh", *COMMAND]
    assert ended(command=shell).returncode == 0


@pytest.mark.parametrize(("arm", "code"), [("unpatched", 1), ("patched", 0)])
def test_a_run_without_a_standard_error_has_its_verdict(arm, code, tmp_path):
    run = ["run", "smoke", "--arm", arm, "--set", "workload.requests=20", "--set", "check.require=[]"]
    command = [*COMMAND[:3], *run, "--launcher", "inline", "--out", str(tmp_path / "run")]
    one = ended(command=["sh", "-c", 'exec "$@" 2>&-', "sh", *command])
    assert one.returncode == code
    assert f"verdict  {'fail (as expected)' if code else 'pass'}" in one.stdout
