"""SGLang's own prefill budget behind a prefix that pins much SWA: docs/findings/own-prefix.md says what it answers."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

from stress.target import TargetUnavailable, add_target

MISSING = [name for name in ("triton", "pydantic", "packaging") if importlib.util.find_spec(name) is None]
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(MISSING), reason=f"not installed: {', '.join(MISSING)} (kvstress[sglang])"),
]


def answer(version: str, *swa_pages: str) -> dict:
    try:
        root = add_target(f"sglang=={version}")
    except TargetUnavailable as error:
        pytest.skip(str(error))
    script = Path(__file__).with_name("prefill_budget_questions.py")
    command = [sys.executable, "-W", "ignore", str(script), str(root), *swa_pages]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_a_request_is_refused_for_what_its_own_prefix_locks():
    found = answer("0.5.23")
    assert (found["hit"], found["admitted"]) == (7936, False)
    assert (
        found["swa_size"] - found["swa_left"] == 7936
    )  # nothing else is locked, so nothing will be given back
    assert found["swa_left"] < found["swa_needed"] < found["swa_size"]


def test_with_room_for_the_prefix_and_a_chunk_it_is_admitted():
    found = answer("0.5.23", "70")
    assert (found["admitted"], found["chunk"]) == (True, 8192)
    assert found["swa_left"] > found["swa_needed"]
