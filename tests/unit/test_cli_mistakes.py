"""Mistakes on the command line: exit 2, nothing on stdout, one line on stderr with the cure, no rank started."""

import os
from pathlib import Path

import pytest

from stress.cli import main
from stress.config import config_names

MISTAKES = [
    ([], "Missing command"),
    (["foo"], "No such command 'foo'"),
    (["run"], "Missing argument 'CONFIG'"),
    (["run", "sed"], f"choose {', '.join(config_names())}, or give a path FILE.toml"),
    (["run", "smoke", "--wrong"], "No such option"),
    (["run", "smoke", "--set", "nonsense"], "--set table.key=value"),
    (["run", "smoke", "--set", "pool.pagesize=1"], "did you mean pool.page_size?"),
    (["run", "smoke", "--arm", "petched"], "choose unpatched, patched"),
    (["run", "smoke", "--fault", "F99"], "unknown fault 'F99'; the faults are F01"),
    (["run", "smoke", "--fault", "F06", "--fault", "dry:F13"], "write it in front of each, or of none"),
    (["run", "smoke", "--fault", "dry:F06", "--fault", "F13"], "write it in front of each, or of none"),
    (["run", "smoke", "--fault", "F06@2"], "--fault F06@2: arms.patched.fault: F06@2: the ranks are 0 to 1"),
    (["matrix", "--fault", "F99"], "--fault F99: unknown fault; the faults are F01, F02"),
    (["matrix", "--fault", "F06+F13"], "name them alone, as in --fault F06 --fault F13"),
    (["matrix", "--fault", "dry:F06"], "name them alone"),
    (["matrix", "--fault", "F16@3"], "name them alone"),
    (["run", "smoke", "--resume", "x"], "not built yet"),
    (["run", "smoke", "--launcher", "slurm"], "'ray', 'local', 'inline'"),
    (
        ["run", "smoke", "--launcher", "inline", "--set", "layout.backend=nccl"],
        "kvstress: --launcher inline: layout.backend is nccl, and ranks in one process exchange over nothing; use",
    ),
    (["run", "smoke", "--seed", "-3"], "--seed"),
    (["run", "smoke", "--set", "workload.trace=bad.jsonl"], "bad.jsonl"),
    (["run", "smoke", "--out", "full"], "overwrites nothing"),
    (["run", "smoke", "--out", "x\udcff"], "kvstress: 'x\\udcff': is no UTF-8; name it in UTF-8"),
    (["nightly", "nightly", "--out", "x\udcff"], "'x\\udcff': is no UTF-8"),
    (["run", "smoke", "--out", ""], "--out: is empty; name a new directory, or leave it out"),
    (["run", "smoke", "--set", 'workload.trace=""'], "the name is empty"),
    (
        ["run", "smoke", "--set", "serving.chunk_tokens=63"],
        "serving.chunk_tokens: 63 is less than a page of 64 tokens (pool.page_size); give 64 or more",
    ),
    (
        ["run", "smoke", "--set", "pool.full_pages=20"],
        "kvstress: --set pool.full_pages=20: pool.full_pages: 20 pages can't hold the longest request",
    ),
    (
        ["run", "smoke", "--set", "pool.page_size=96"],
        "kvstress: --set pool.page_size=96: pool.page_size = 96: the trace has blocks of 64 tokens",
    ),
    (["run", "smoke", "--set", "workload.trace=fifo"], "fifo: is no regular file"),
    (["compare", "smoke", "--base", "unpatched"], "Missing option '--test'"),
    (["compare", "smoke", "--base", "a", "--test", "patched"], "choose unpatched, patched"),
    (["repro", "--target", "sgl"], "there is reference"),
    (["report", "nowhere"], "no run here"),
    (["report", "half"], "half/verdict.json: has no 'layout'; it is not whole"),
    (["trace"], "Missing command"),
    (["trace", "info", "nowhere.jsonl"], "nowhere.jsonl"),
    (["trace", "info", "bad.jsonl", "--json"], "bad.jsonl"),
    (["trace", "info", ""], "the name is empty"),
    (["trace", "info", "fifo"], "fifo: is no regular file"),
    (["trace", "info", "generated:poetry"], "use generated:agentic or generated:agentic-small"),
]


@pytest.mark.parametrize(
    ("arguments", "cure"), MISTAKES, ids=lambda value: " ".join(value) if isinstance(value, list) else ""
)
def test_a_mistake_is_one_line_on_stderr(ranks, capsys, arguments, cure):
    fakes = ranks()
    Path("full").mkdir()
    Path("full/file").touch()
    Path("half/ranks").mkdir(parents=True)
    Path("half/verdict.json").write_text('{"schema": 1, "verdict": "pass"}')
    os.mkfifo("fifo")
    Path("bad.jsonl").write_text("\x00\x01 no trace\n")
    assert main(arguments) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert len(printed.err.splitlines()) == 1
    assert cure in printed.err
    assert fakes.runs == []
