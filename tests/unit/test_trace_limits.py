"""What a trace may not be: special files, nested without end, longer than anything real, without a good row."""

import json
import os
from pathlib import Path

import pytest

from stress.config import Serving, Workload
from stress.workload import TraceError, WorkloadError
from stress.workload.info import generated_info, trace_info
from stress.workload.readers import read_trace

FIXTURES = Path(__file__).parents[1] / "fixtures"
GOOD = (FIXTURES / "mooncake.jsonl").read_bytes()


def error_of(path, on_bad_row="fail"):
    with pytest.raises(TraceError) as caught:
        read_trace(str(path), on_bad_row)
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 400
    return caught.value


def mooncake(tmp_path, **changes):
    """A trace of one row."""
    row = {"timestamp": 0, "input_length": 600, "output_length": 5, "hash_ids": [1, 2], **changes}
    path = tmp_path / "one.jsonl"
    path.write_text(json.dumps(row) + "\n")
    return path


def weka(tmp_path, **changes):
    """A trace of one session of one request."""
    request = {"t": 0.0, "in": 130, "out": 5, "keep": 0, "new": [[1, 2]], **changes}
    path = tmp_path / "one.jsonl"
    path.write_text(json.dumps({"requests": [request]}) + "\n")
    return path


def test_a_fifo_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "fifo")
    assert "is no regular file" in str(error_of(tmp_path / "fifo"))
    assert "is no regular file" in str(error_of("/dev/zero"))
    assert str(error_of("")).startswith("trace: the name is empty;")


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize("opening", [b"[", b'{"requests":'])
def test_deep_nesting_is_one_line(tmp_path, whole, opening):
    closing = b"]" if opening == b"[" else b"}"
    deep = opening * 100_000 + b"1" + closing * 100_000
    path = tmp_path / "deep"
    path.write_bytes(deep if whole else deep + b"\n" + GOOD)
    for on_bad_row in ("fail", "skip"):
        if not whole and opening != b"[" and on_bad_row == "skip":
            assert read_trace(str(path), "skip").rows == 7
        else:
            assert "nested too deeply" in str(error_of(path, on_bad_row))


@pytest.mark.parametrize("name", ["mooncake.jsonl", "weka_raw.json"])
def test_a_byte_order_mark_is_passed_over(tmp_path, name):
    path = tmp_path / "marked"
    path.write_bytes(b"\xef\xbb\xbf" + (FIXTURES / name).read_bytes())
    assert read_trace(str(path)).input.tolist() == read_trace(str(FIXTURES / name)).input.tolist()


def test_lengths_are_refused_with_the_limits(tmp_path):
    told = str(error_of(mooncake(tmp_path, output_length=10**7 + 1)))
    assert (
        "output_length: 10000001 tokens, an output has 0 to 10000000; mend the row or set workload.on_bad"
        in told
    )
    assert read_trace(str(mooncake(tmp_path, output_length=10**7))).output.tolist() == [10**7]
    told = str(error_of(mooncake(tmp_path, input_length=2**31)))
    assert "input_length: 2147483648 tokens, a prompt has 1 to 2147483647;" in told
    assert "requests[0].out: 10000001 tokens, an output has 0 to 10000000;" in str(
        error_of(weka(tmp_path, out=10**7 + 1))
    )
    assert read_trace(str(weka(tmp_path, out=10**7))).output.tolist() == [10**7]
    assert "requests[0].in: 0 tokens, a prompt has 1 to 2147483647;" in str(
        error_of(weka(tmp_path, **{"in": 0}))
    )


def test_a_trace_without_a_good_row_shows_the_first_bad_one(tmp_path):
    path = tmp_path / "bad.jsonl"
    path.write_bytes(GOOD.replace(b'"output_length": ', b'"output_length": -'))
    for refused in (lambda: trace_info(str(path)), lambda: read_trace(str(path), "skip")):
        with pytest.raises(TraceError) as caught:
            refused()
        error = caught.value
        assert (error.line, error.field) == (1, "output_length")
        assert error.reason.endswith("an output has 0 to 10000000 (the first of 7, none is usable); "
                                     "give a trace with good rows")  # fmt: skip
    with pytest.raises(TraceError) as caught:
        trace_info(str(weka(tmp_path, t=-1.0)))
    assert (caught.value.line, caught.value.field) == (1, "requests[0].t")


@pytest.mark.parametrize("name", ["agentic", "agentic-small"])
def test_a_generator_has_the_facts_of_a_trace(name):
    facts = generated_info(f"generated:{name}", Workload(), Serving())
    assert list(facts) == list(trace_info(str(FIXTURES / "mooncake.jsonl")))
    assert (facts["file"], facts["format"], facts["block_tokens"]) == (f"generated:{name}", "generated", 64)
    assert (facts["sessions"], facts["bad_rows"], facts["sessions_guessed"]) == (1000, 0, False)
    assert 0.8 < facts["prefix_hit"] < 1 and facts["span_s"] > 0
    assert generated_info(f"generated:{name}", Workload(), Serving()) == facts


def test_a_generator_that_does_not_exist_is_refused():
    with pytest.raises(WorkloadError, match="use generated:agentic or generated:agentic-small"):
        generated_info("generated:poetry", Workload(), Serving())
