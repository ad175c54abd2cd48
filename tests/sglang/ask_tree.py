"""Runs a script of this folder in a process of its own, for a process imports one tree; takes its last JSON line."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from stress.target import TargetUnavailable, add_target

TIMEOUT_S = 300


def answer(script: str, version: str, *arguments: str) -> dict:
    """What the script prints about a release's tree; skipped where that can't be fetched."""
    try:
        root = add_target(f"sglang=={version}")
    except TargetUnavailable as error:
        pytest.skip(str(error))
    command = [sys.executable, "-W", "ignore", str(Path(__file__).with_name(script)), str(root), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])
