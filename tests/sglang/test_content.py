"""What a forward pass reads of a real release is watched: its window (I9), and what is in the pages (I16)."""

from __future__ import annotations

import importlib.util

import pytest
from ask_tree import answer

MISSING = [name for name in ("triton", "pydantic", "packaging") if importlib.util.find_spec(name) is None]
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(MISSING), reason=f"not installed: {', '.join(MISSING)} (kvstress[sglang])"),
]


def ask(wrong: str, *overrides: str) -> dict:
    found = answer("content_questions.py", "0.5.23", wrong, *overrides)
    assert found["crashed"] == ""
    return found


@pytest.mark.parametrize(
    ("overrides", "watched"),
    [((), {"I9", "I16"}), (("linker.enabled=false", "pool.unified_kv=false"), {"I9", "I16"})],
)
def test_a_release_as_shipped_reads_what_it_has_written(overrides, watched):
    found = ask("clean", *overrides)
    assert watched <= set(found["watched"]) and found["findings"] == {} and found["status"] == "finished"


def test_where_a_load_moves_swa_its_content_is_not_watched():
    found = ask("clean", "pool.unified_kv=false")
    assert "I9" in found["watched"] and "I16" not in found["watched"] and found["findings"] == {}


def test_a_window_that_is_evicted_too_far_is_found_where_it_is_read():
    found = ask("window")
    assert found["first"]["rule"] == "I9" and "reads page" in found["first"]["message"]
    assert "which has no swa page since operation" in found["first"]["message"]


def test_pages_in_each_others_rows_are_found_by_their_content_first():
    found = ask("row")
    assert (found["first"]["rule"], found["first"]["pool"]) == ("I16", "full")
    assert " of request " in found["first"]["message"] and "publishes it as" in found["first"]["message"]
