"""The reference and real SGLang under the same operations: hits, refusals and each pool's counts after each one.

docs/agreement.md has the whole table. Each tree and core is a process of its own; trees are fetched once.
"""

from __future__ import annotations

import importlib.util

import pytest

from stress.target import TargetUnavailable, add_target
from stress.target.process import ask_tree

MISSING = [name for name in ("triton", "pydantic", "packaging") if importlib.util.find_spec(name) is None]
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(MISSING), reason=f"not installed: {', '.join(MISSING)} (kvstress[sglang])"),
]
SHORT = "workload.requests=120"


def compared(version: str, core: str, seeds: str, *overrides: str) -> dict:
    try:
        root = add_target(f"sglang=={version}")
    except TargetUnavailable as error:
        pytest.skip(str(error))
    return ask_tree("stress.agreement", root, core, seeds, *overrides)  # exits 0 where all agree


@pytest.mark.parametrize("core", ["python", "rust"])
@pytest.mark.parametrize("version", ["0.5.20", "0.5.23"])
def test_every_operation_of_smoke_agrees(version: str, core: str):
    found = compared(version, core, "1-2", SHORT)
    assert (found["version"], found["core"]) == (version, core)
    assert [run["parted"] for run in found["runs"]] == [None] * 2
    assert [run["error"] for run in found["runs"]] == [""] * 2
    assert found["agreed"] == 2
    for run in found["runs"]:
        assert run["status"] == "finished" and run["requests"] > 100
        assert run["operations"] > 1000 and run["seen"]["node_split"] > 0


@pytest.mark.parametrize("version", ["0.5.20", "0.5.23"])
def test_a_linker_that_restores_the_window_agrees_too(version: str):
    (run,) = compared(version, "rust", "4", SHORT, "pool.unified_kv=false")["runs"]
    assert run["agrees"], run["parted"] or run["error"]
    assert run["seen"]["load_back"] > 0 and run["seen"]["tombstone_recovered"] > 0


def test_requests_that_come_twice_at_once_agree_too():
    forks = ("workload.fork_rate=0.5", "workload.cancel_rate=0.3", "serving.chunk_tokens=512")
    (run,) = compared("0.5.23", "rust", "1", "workload.requests=250", *forks)["runs"]
    assert run["agrees"], run["parted"] or run["error"]
    assert run["seen"]["tombstone_recovered"] > 0


def test_the_comparison_sees_a_habit_of_another_release(tmp_path):
    """A control: 0.5.20's code behind the habits of 0.5.23 parts at its first restorable prefix."""
    try:
        root = add_target("sglang==0.5.20")
    except TargetUnavailable as error:
        pytest.skip(str(error))
    renamed = tmp_path / "renamed"
    (renamed / "sglang").mkdir(parents=True)
    for entry in (root / "sglang").iterdir():
        if entry.name != "version.py":
            (renamed / "sglang" / entry.name).symlink_to(entry)
    (renamed / "sglang" / "version.py").write_text('__version__ = "0.5.23"\n')
    (run,) = ask_tree("stress.agreement", renamed, "python", "1", SHORT, answers=(1,))["runs"]
    assert not run["agrees"] and run["status"] == "finished"
    assert run["parted_at"] == 1 and "loaded=" in run["parted"]
