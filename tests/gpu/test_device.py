"""What scripts/gpu_check.py checks on a device, a test each; skipped with the reason where there is none."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

pytestmark = pytest.mark.gpu

SCRIPT = Path(__file__).parents[2] / "scripts" / "gpu_check.py"


def load_script():
    spec = importlib.util.spec_from_file_location("gpu_check", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


gpu_check = load_script()


@pytest.mark.parametrize("name", gpu_check.CHECKS)
def test_on_the_device(name: str) -> None:
    assert gpu_check.CHECKS[name]("cuda:0")
