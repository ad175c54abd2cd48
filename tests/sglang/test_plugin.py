"""The plugin in SGLang 0.5.23: built by its factory, driven through its linker wrapper, cache and allocator.

Each tree core is asked in a process of its own. Skipped where pip can't fetch the release or a package of the extra
`sglang` is missing. No server and no GPU: KV pools are the tree's own classes with CPU tensors, or have none.
"""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

from stress.target import TargetUnavailable, add_target

RELEASE = "sglang==0.5.23"
SCRIPT = Path(__file__).with_name("plugin_questions.py")
PREFIX = 8 * 16  # tokens
PAGES = 8
NOTHING = [0, 0]
MISSING = [name for name in ("triton", "pydantic", "packaging") if importlib.util.find_spec(name) is None]
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(MISSING), reason=f"not installed: {', '.join(MISSING)} (kvstress[sglang])"),
]
_answers: dict = {}


def started(*arguments):
    try:
        root = add_target(RELEASE)
    except TargetUnavailable as error:
        pytest.skip(str(error))
    command = [sys.executable, "-W", "ignore", str(SCRIPT), str(root), *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def answer(process):
    try:
        printed, said = process.communicate(timeout=300)
    finally:
        process.kill()
    assert process.returncode == 0, said
    return json.loads(printed.splitlines()[-1])


@pytest.fixture(params=["python", "rust"])
def asked(request):
    core = request.param
    if core not in _answers:
        _answers[core] = answer(started(core))
    if _answers[core]["core"] != core:
        pytest.skip(f"the {core} tree core of {RELEASE} does not load with this torch")
    return _answers[core]


def loaded(steps):
    return [step["loaded"] for step in steps]


def failed(steps):
    return [step["failed"] for step in steps]


@pytest.mark.parametrize("pools", ["kv", "kv_swa"])
def test_a_prefix_is_offloaded_matched_and_loaded_and_one_load_fails(asked, pools):
    run = asked[pools]
    assert run["skips_swa"] == (pools == "kv")
    assert [step["cached"] for step in run["steps"]] == [0, 0, 0, 0], "the device was emptied each time"
    assert loaded(run["steps"]) == [0, PREFIX, PREFIX, PREFIX]
    assert failed(run["steps"]) == [False, False, True, False], (
        "upstream aborts the request of the failed load"
    )
    assert run["stats"]["loads"] == 3 and run["stats"]["failed_loads"] == 1


@pytest.mark.parametrize("pools", ["kv", "kv_swa", "other_rank", "offload_failed", "offload_short"])
def test_nothing_leaks(asked, pools):
    run = asked[pools]
    assert run["leaks"] == [NOTHING] * 4
    assert run["rows_left"] == run["private"] == 0
    assert run["pending"] == [0, 0, 0, 0]


def test_another_rank_is_not_hit(asked):
    assert failed(asked["other_rank"]["steps"]) == [False] * 4
    assert asked["other_rank"]["stats"]["failed_loads"] == 0


def test_a_failed_offload_is_not_found_and_is_sent_again(asked):
    run = asked["offload_failed"]
    assert run["offloads"][0] is False and all(run["offloads"][1:])
    assert loaded(run["steps"]) == [0, 0, PREFIX, PREFIX]
    assert run["stored"] == PAGES


def test_a_short_offload_leaves_the_head(asked):
    run = asked["offload_short"]
    assert run["offloads"][0] is False
    assert loaded(run["steps"]) == [0, PREFIX * 3 // 8, PREFIX, PREFIX]


def test_what_is_read_is_what_was_written(asked):
    run = asked["content"]
    assert run["pools"] == ["kv", "swa"] and run["step"]["loaded"] == PREFIX
    assert run["seen"]["full"] == PREFIX
    assert run["seen"]["swa"] == 32, "the window in front of the request's first token"
    assert run["leaks"] == [NOTHING] * 2


def test_kv_alone_restores_no_window(asked):
    run = asked["content_kv"]
    assert run["pools"] == ["kv"]
    assert (run["seen"]["full"], run["seen"]["swa"]) == (PREFIX, 0)


def test_a_delayed_load_is_not_there_before_a_layer_is_waited_for(asked):
    run = asked["content_late"]
    assert run["seen"]["early"] == 0
    assert (run["seen"]["full"], run["seen"]["swa"]) == (PREFIX, 32)
    assert not run["step"]["failed"]


def test_a_short_load_writes_half_and_is_reported(asked):
    run = asked["content_short"]
    assert run["seen"]["full"] == PREFIX // 2
    assert run["step"]["failed"] and run["leaks"] == [NOTHING] * 2


def test_a_failed_load_writes_nothing_and_is_reported(asked):
    run = asked["content_failed"]
    assert run["seen"]["full"] == run["seen"]["swa"] == 0
    assert run["step"]["failed"] and run["leaks"] == [NOTHING] * 2


def test_a_small_store_keeps_a_head_and_a_page_lost_after_the_match_fails_the_load(asked):
    run = asked["bounded"]
    # Six pages and then two are offloaded to a store of five: the first three stay, and the last two.
    assert run["head"]["loaded"] == 3 * 16 and not run["head"]["failed"]
    assert run["lost"]["loaded"] and run["lost"]["failed"]
    assert run["leaks"] == NOTHING


def test_a_request_that_leaves_takes_its_queued_load_along(asked):
    run = asked["abort"]
    assert (run["loaded"], run["queued"], run["left"]) == (PREFIX, 1, 0)
    assert run["again"]["loaded"] == PREFIX
    assert run["leaks"] == NOTHING


def test_upstreams_pool_list_is_read_row_by_row(asked):
    by_slot, by_page = asked["group"]
    assert (by_slot["rows"], by_slot["rows_a_page"], by_slot["layers"]) == ([48, 16], 16, {"0": 1, "1": 1})
    assert (by_page["rows"], by_page["rows_a_page"], by_page["layers"]) == ([3, 1], 1, {"1": 2})
    assert by_page["source"] == "kv"


@pytest.mark.parametrize(
    ("case", "says"),
    [
        ("unknown_key", "unknown field `delya_ms`; the keys are store_pages, pools"),
        ("no_bound", "missing required field `store_pages`"),
        ("no_kv", "has no 'kv'; every load needs the KV pool"),
        ("no_such_pool", "['mamba'] are not pools of this model"),
        ("lost_for_good", "faults[0].delay_ms: a lost load would stop the server"),
        ("rank_env", "KVSTRESS_TEST_NO_SUCH_RANK is '', no rank"),
    ],
)
def test_wrong_options_are_refused_in_one_line(asked, case, says):
    assert says in asked["refused"][case] and "\n" not in asked["refused"][case]


def test_a_load_that_fails_on_one_rank_is_aborted_on_both(tmp_path):
    rendezvous = str(tmp_path / "ranks")
    ranks = [started("python", str(rank), rendezvous) for rank in range(2)]
    runs = [answer(process) for process in ranks]
    assert [failed(run["steps"]) for run in runs] == [[False, False, True, False]] * 2
    assert [run["stats"]["failed_loads"] for run in runs] == [0, 1]
    assert [run["leaks"] for run in runs] == [[NOTHING] * 4] * 2


def test_pools_that_can_not_be_moved_whole_are_refused(asked):
    pools = asked["pools"]
    assert pools["plain"] == [3, [["kv", 16, [0, 1, 2]]]]
    assert "KV with scales is not moved; start with --kv-cache-dtype auto" in pools["scaled"]
    assert "start without speculative decoding" in pools["draft"]
    assert "does not support the direct external linker" in pools["unknown"], "upstream's own words"
