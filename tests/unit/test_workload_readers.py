"""Trace readers: both Weka forms agree, Mooncake turns are found, and whatever is wrong is one line with a cure."""

import gzip
import json
from pathlib import Path

import numpy as np
import pytest

from stress.workload import TraceError, WorkloadError
from stress.workload.info import trace_info
from stress.workload.readers import read_trace

FIXTURES = Path(__file__).parents[1] / "fixtures"
ARRAYS = [
    "session_stream",
    "stream_row",
    "stream_head",
    "stream_after",
    "stream_join",
    "input",
    "output",
    "keep",
    "wait_us",
    "arrival_us",
    "run_row",
    "run_start",
    "run_count",
]


def rows_of(name):
    return [json.loads(line) for line in (FIXTURES / name).read_text().splitlines()]


def write(tmp_path, rows, name="trace.jsonl"):
    path = tmp_path / name
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def error_of(path, on_bad_row="fail"):
    with pytest.raises(TraceError) as caught:
        read_trace(path, on_bad_row)
    text = str(caught.value)
    assert "\n" not in text and text.startswith(str(path)) and ";" in text, text
    return caught.value


@pytest.mark.parametrize("form", ["packed.jsonl", "jsonl of raw", "one gzip"])
def test_weka_forms_agree(form, tmp_path):
    raw = read_trace(FIXTURES / "weka_raw.json")
    if form == "packed.jsonl":
        other = read_trace(FIXTURES / "weka_packed.jsonl")
    elif form == "jsonl of raw":
        other = read_trace(write(tmp_path, json.loads((FIXTURES / "weka_raw.json").read_text())))
    else:
        other = read_trace(FIXTURES / "weka_raw_one.json.gz")
        assert other.count == 1 and other.rows == 9
        assert np.array_equal(raw.input[:9], other.input) and np.array_equal(raw.keep[:9], other.keep)
        return
    for name in ARRAYS:
        assert np.array_equal(getattr(raw, name), getattr(other, name)), name


def test_weka_content():
    s = read_trace(FIXTURES / "weka_packed.jsonl")
    assert (s.count, s.rows, len(s.stream_head), s.block_tokens) == (2, 12, 4, 64)
    assert s.input[:5].tolist() == [2600, 2800, 3100, 3200, 3500]
    assert s.keep[:5].tolist() == [0, 40, 43, 8, 50]
    assert s.output[2] == 1 and s.zero_outputs == 1
    assert s.stream_head.tolist() == [548, 576, 576, 548]
    # A marker's t is the sub-agent's end: 30 s - 18 s = 12 s is half a second after its parent's end.
    assert s.stream_after.tolist() == [-1, 1, 1, -1] and s.stream_join.tolist() == [-1, 2, 2, -1]
    assert s.wait_us[[5, 7]].tolist() == [500_000, 500_000]
    assert s.wait_us[2] == 20_000_000  # 60 s - 40 s, the last sub-agent's end
    assert s.wait_us[3] == 237_000_000
    assert s.new_tokens()[[0, 1, 3]].tolist() == [2600 - 548, 2800 - 40 * 64, 3200 - 8 * 64]


def test_weka_without_waits_takes_them_from_the_times(tmp_path):
    rows = rows_of("weka_packed.jsonl")[1:]
    for request in rows[0]["requests"]:
        del request["think_time"]
    assert read_trace(write(tmp_path, rows)).wait_us.tolist() == [0, 3_000_000, 3_000_000]


def test_weka_absolute_nested_times_and_async_agents(tmp_path):
    rows = rows_of("weka_packed.jsonl")[:1]
    first, second = rows[0]["requests"][2:4]
    for request in first["requests"]:
        request["t"] += 12.0
    del second["duration_ms"]
    s = read_trace(write(tmp_path, rows))
    assert s.arrival_us[5:7].tolist() == [12_000_000, 18_000_000]
    assert s.stream_join.tolist() == [-1, 2, -1], "nobody waits for an asynchronous sub-agent"


def test_mooncake_turns():
    s = read_trace(FIXTURES / "mooncake.jsonl")
    assert (s.rows, s.block_tokens, s.ceil_tail, s.shared_ids) == (7, 512, True, True)
    turns = [s.input[a:b].tolist() for a, b in zip(s.stream_row[:-1], s.stream_row[1:], strict=True)]
    # [0,2,3] -> [0,2,6,..] goes on from its full blocks; the repeat joins; [0,2,6,7,9,10] goes on from [0,2,6,7,8].
    assert turns == [[1000], [1500, 2100, 1500, 2700], [1100], [513]]
    again = read_trace(FIXTURES / "mooncake.jsonl.gz")
    for name in ARRAYS:
        assert np.array_equal(getattr(s, name), getattr(again, name)), name


def test_info():
    info = trace_info(FIXTURES / "mooncake.jsonl")
    # By hand: blocks 0 | 0 | 0 | 0,2 | all three of 1500 | 0,2,6,7 | 0, of the prompt tokens.
    held = 512 + 512 + 512 * 2 + 1500 + 512 * 4 + 512
    total = 1000 + 1500 + 1100 + 2100 + 1500 + 2700 + 513
    assert info["format"] == "mooncake" and info["prefix_hit"] == round(held / total, 4)
    info = trace_info(FIXTURES / "weka_packed.jsonl")
    assert info["format"] == "weka packed" and info["sub_agents"] == 2 and info["requests"] == 12
    assert trace_info(FIXTURES / "weka_raw.json")["format"] == "weka raw"
    assert json.loads(json.dumps(info)) == info


@pytest.mark.parametrize(
    "field, value",
    [
        ("input_length", 0),
        ("input_length", -5),
        ("input_length", "x"),
        ("output_length", -1),
        ("hash_ids", [1, 2]),
        ("hash_ids", [0, 2, -1]),
        ("hash_ids", [0, 2, 2**63]),
        ("timestamp", -1),
        ("timestamp", 4000),
        ("timestamp", None),
    ],
)
def test_bad_mooncake_rows(field, value, tmp_path):
    rows = rows_of("mooncake.jsonl")
    rows[1][field] = value
    path = write(tmp_path, rows)
    if (field, value) == ("timestamp", 4000):  # it is the rows below that go back
        error = error_of(path)
        assert error.line == 3 and error.field == "timestamp" and "sort" in str(error)
        assert read_trace(path, "skip").rows_skipped == 3
        return
    error = error_of(path)
    assert error.line == 2 and error.field.startswith(field)
    s = read_trace(path, "skip")
    assert s.rows_skipped == 1 and s.rows == 6


@pytest.mark.parametrize("field", ["timestamp", "input_length", "output_length", "hash_ids"])
def test_mooncake_row_without_a_field(field, tmp_path):
    rows = rows_of("mooncake.jsonl")
    del rows[2][field]
    path = write(tmp_path, rows)
    assert error_of(path).line == 3 and field in str(error_of(path))
    assert read_trace(path, "skip").rows_skipped == 1


@pytest.mark.parametrize(
    "field, value",
    [
        ("in", 0),
        ("in", 9000),
        ("in", None),
        ("out", -1),
        ("t", 1.0),
        ("t", -1.0),
        ("think_time", -3.0),
        ("keep", 99),
        ("new", [[44, 0]]),
        ("new", "x"),
    ],
)
def test_bad_weka_requests(field, value, tmp_path):
    rows = rows_of("weka_packed.jsonl")
    request = rows[0]["requests"][4]
    request[field] = value
    path = write(tmp_path, rows)
    error = error_of(path)
    assert error.line == 1 and "requests[4]" in error.field
    s = read_trace(path, "skip")
    assert s.rows_skipped >= 1 and s.count == 2
    assert s.rows + s.rows_skipped == 12, "every request is either played or counted"


def test_a_skipped_request_keeps_the_chain_of_those_after_it(tmp_path):
    rows = rows_of("weka_packed.jsonl")
    rows[0]["requests"][1]["out"] = -1
    s = read_trace(write(tmp_path, rows), "skip")
    # Row 3 kept 43 ids of the row left out: 40 of the first row, then ids 41..43 that row wrote.
    assert s.rows_skipped == 1 and s.keep[1] == 40
    lo, hi = s.run_row[1], s.run_row[2]
    ids = [i for a, c in zip(s.run_start[lo:hi], s.run_count[lo:hi], strict=True) for i in range(a, a + c)]
    assert ids == list(range(41, 49))


def test_files_that_are_no_trace(tmp_path):
    def put(name, data):
        path = tmp_path / name
        path.write_bytes(data)
        return str(path)

    whole = (FIXTURES / "mooncake.jsonl").read_bytes()
    packed = (FIXTURES / "weka_packed.jsonl").read_bytes()
    zipped = gzip.compress(whole, mtime=0)
    assert "no such file" in str(error_of(str(tmp_path / "none.jsonl")))
    assert "directory" in str(error_of(str(tmp_path)))
    assert "empty" in str(error_of(put("empty", b"")))
    assert "empty" in str(error_of(put("blank.gz", gzip.compress(b"\n\n"))))
    assert "ends early" in str(error_of(put("early.gz", zipped[: len(zipped) // 2])))
    assert "ends early" in str(error_of(put("head.gz", zipped[:5])))
    assert "gzip" in str(error_of(put("broken.gz", zipped[:30] + b"\xff" * 9 + zipped[39:])))
    assert "binary" in str(error_of(put("noise", bytes(range(256)) * 9)))
    assert "no row" in str(error_of(put("latin", b"\xe9\xff caf\n" * 5)))
    assert "CSV" in str(error_of(put("azure.csv", b"TIMESTAMP,ContextTokens,GeneratedTokens\n1,2,3\n")))
    assert "TraceLab" in str(error_of(put("lab.jsonl", b'{"input_tokens_total": 5}\n')))
    assert "no row" in str(error_of(put("list.json", b"[1, 2, 3]")))
    for data in (whole, packed, (FIXTURES / "weka_raw.json").read_bytes()):
        error = error_of(put("cut.json", data[: len(data) * 5 // 6]))
        assert "middle of a row" in str(error), error
    alone = gzip.decompress((FIXTURES / "weka_raw_one.json.gz").read_bytes())
    assert "middle of a row" in str(error_of(put("alone.json", alone[:-40])))
    spread = (FIXTURES / "weka_raw.json").read_bytes().replace(b'"t": 60.0', b'"t": x60.0')
    error = error_of(put("spread.json", spread))
    assert error.line == 1 + spread[: spread.index(b"x60.0")].count(b"\n") and "not JSON" in str(error)
    for on_bad_row in ("fail", "skip"):
        assert "1" in str(error_of(put("one", b'{"timestamp": 1, "input_length": 0}\n'), on_bad_row))
    assert read_trace(put("cut.jsonl", whole[:-20]), "skip").rows_skipped == 1


def test_on_bad_row_is_checked():
    with pytest.raises(WorkloadError, match='use "fail" or "skip"'):
        read_trace(FIXTURES / "mooncake.jsonl", "ignore")


@pytest.mark.parametrize("name", ["mooncake.jsonl", "weka_packed.jsonl", "weka_raw.json"])
def test_damaged_bytes_give_one_line_or_a_sound_trace(name, tmp_path):
    data, rng, raised = (FIXTURES / name).read_bytes(), np.random.default_rng(5), 0
    values = [b"-1", b"99999999999999999999", b"1e400", b"null", b'"a"', b"[]", b"1.5", b"{}", b"9999999999"]
    digits = [i for i, byte in enumerate(data) if 48 <= byte <= 57]
    path = tmp_path / "damaged"
    for kind in range(120):
        at, damaged = int(rng.integers(len(data))), bytearray(data)
        if kind % 4 == 0:
            damaged = damaged[:at]
        elif kind % 4 == 1:
            damaged[at : at + 1] = bytes(rng.integers(0, 256, 3).tolist())
        elif kind % 4 == 2:
            del damaged[at : at + 9]
        else:
            at = digits[at % len(digits)]
            damaged[at : at + 1] = values[kind // 4 % len(values)]
        path.write_bytes(damaged)
        for on_bad_row in ("fail", "skip"):
            try:
                s = read_trace(path, on_bad_row)
            except TraceError as error:
                raised += 1
                assert "\n" not in str(error) and str(error).startswith(str(path)) and len(str(error)) < 500
            else:
                assert (s.input > 0).all() and (s.output > 0).all() and (s.keep >= 0).all()
                assert (s.wait_us >= 0).all() and (np.diff(s.run_row) >= 0).all()
    assert raised > 60
