"""SGLang's own prefill budget behind a prefix that pins much SWA: docs/findings/own-prefix.md says what it answers."""

import importlib.util

import pytest
from ask_tree import answer

MISSING = [name for name in ("triton", "pydantic", "packaging") if importlib.util.find_spec(name) is None]
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(MISSING), reason=f"not installed: {', '.join(MISSING)} (kvstress[sglang])"),
]


SCRIPT = "prefill_budget_questions.py"


def test_a_request_is_refused_for_what_its_own_prefix_locks():
    found = answer(SCRIPT, "0.5.23")
    assert (found["hit"], found["admitted"]) == (7936, False)
    assert (
        found["swa_size"] - found["swa_left"] == 7936
    )  # nothing else is locked, so nothing will be given back
    assert found["swa_left"] < found["swa_needed"] < found["swa_size"]


def test_with_room_for_the_prefix_and_a_chunk_it_is_admitted():
    found = answer(SCRIPT, "0.5.23", "70")
    assert (found["admitted"], found["chunk"]) == (True, 8192)
    assert found["swa_left"] > found["swa_needed"]
