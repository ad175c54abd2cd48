"""The device script without a device: it says so, its parts that need none work, and its controls bite."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
import torch

SCRIPT = Path(__file__).parents[2] / "scripts" / "gpu_check.py"


@pytest.fixture(scope="module")
def gpu_check():
    spec = importlib.util.spec_from_file_location("gpu_check", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def sync_modes(monkeypatch) -> list[str]:
    """Torch's switch, which needs a device even to be set, replaced by a note of what was asked."""
    asked: list[str] = []
    monkeypatch.setattr(torch.cuda, "set_sync_debug_mode", asked.append)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    return asked


def test_without_a_device_one_line_and_exit_3(gpu_check, monkeypatch, capsys) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert gpu_check.main() == 3
    assert capsys.readouterr().out.count("\n") == 1


def test_a_line_a_check_and_exit_1_when_one_fails(gpu_check, monkeypatch, capsys) -> None:
    def broken(device: str) -> str:
        raise RuntimeError("two\nlines")

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: f"a card at {device}")
    monkeypatch.setattr(gpu_check, "CHECKS", {"good": lambda device: device, "bad": broken})
    assert gpu_check.main() == 1
    first, good, bad, last = capsys.readouterr().out.splitlines()
    assert first.startswith("a card at cuda:0, torch ")
    assert (good.startswith("ok      good: cuda:0 ("), last) == (True, "1 of 2 checks hold")
    assert bad.startswith("FAILED  bad: RuntimeError: two lines (")


def test_two_gloo_ranks_and_one_that_can_not(gpu_check) -> None:
    assert gpu_check.gloo_pair("cpu") == "50 step plans of 2 ranks on cpu, cpu"
    with pytest.raises(
        gpu_check.CheckFailed, match=r"a rank ended with 1: .*LaunchError: layout.backend is nccl"
    ):
        gpu_check.nccl_each("cpu")
    with pytest.raises(gpu_check.CheckFailed, match="the plans travel over gloo, not over nccl"):
        gpu_check._group("auto", ["cpu"], "nccl")


def test_the_smoke_run_is_that_of_the_cpu(gpu_check) -> None:
    assert "reproduced_and_fixed" in gpu_check.smoke_arms("cpu")
    assert "2 first findings alike" in gpu_check.same_as_on_a_cpu("cpu")
    other = gpu_check._compare_smoke("cpu") | {"digest": "0"}
    gpu_check._compare_smoke, kept = (
        (lambda device: other if device == "cuda" else kept("cpu")),
        gpu_check._compare_smoke,
    )
    try:
        with pytest.raises(gpu_check.CheckFailed, match="digest 0"):
            gpu_check.same_as_on_a_cpu("cuda")
    finally:
        gpu_check._compare_smoke = kept


def test_a_switch_that_refuses_nothing_shows_nothing(gpu_check, sync_modes) -> None:
    """On a CPU item() is not refused: the check must not hold then."""
    with pytest.raises(gpu_check.CheckFailed, match="control"):
        gpu_check.probe_never_waits("cpu")
    assert sync_modes == ["error", "default"]


def test_the_probe_on_copies_that_land_later_finds_the_four_returns(
    gpu_check, sync_modes, monkeypatch
) -> None:
    monkeypatch.setattr(gpu_check, "_refused", lambda wait: True)
    assert "four returns" in gpu_check.probe_never_waits("cpu")


def test_syncs_are_counted_but_for_the_step_ends(gpu_check, sync_modes, monkeypatch) -> None:
    """Warnings as torch gives them, from an engine that warns at each wait and a filter that warns too."""
    from stress.engine.reference.engine import ReferenceEngine

    engine_waits = ReferenceEngine.synchronize

    def wait(engine) -> None:
        warnings.warn("called a synchronizing CUDA operation", UserWarning)
        engine_waits(engine)

    monkeypatch.setattr(ReferenceEngine, "synchronize", wait)
    with pytest.raises(gpu_check.CheckFailed, match="control: the patched arm's filter"):
        gpu_check.probe_adds_no_sync("cpu")
    nonzero = ReferenceEngine.finish

    def finish(engine, rid: int) -> None:
        warnings.warn("called a synchronizing CUDA operation", UserWarning)
        nonzero(engine, rid)

    monkeypatch.setattr(ReferenceEngine, "finish", finish)
    assert "waits without the probe" in gpu_check.probe_adds_no_sync("cpu")
    counts = ReferenceEngine.counts

    def counted(engine):  # the probe asks for counts, nobody else does at check level 0
        warnings.warn("called a synchronizing CUDA operation", UserWarning)
        return counts(engine)

    monkeypatch.setattr(ReferenceEngine, "counts", counted)
    with pytest.raises(gpu_check.CheckFailed, match="the probe adds"):
        gpu_check.probe_adds_no_sync("cpu")
    assert set(sync_modes) == {"warn", "default"}


def test_as_a_script_it_imports_no_ray() -> None:
    code = f"import runpy, sys; runpy.run_path({str(SCRIPT)!r}); print('ray' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=SCRIPT.parents[1], capture_output=True, text=True)
    assert done.stdout.strip() == "False", done.stderr
