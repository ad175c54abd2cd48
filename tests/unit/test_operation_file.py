"""Recorded operations come back as they were, also from a file that a kill cut short."""

from __future__ import annotations

import resource

import pytest

from stress.operation import Kind, Operation
from stress.operation_file import Header, OperationFile, OperationFileError, operations_path, read_operations

HEADER = Header(schema=1, arm="patched", rank=3, seed=7)


def some(count: int) -> list[Operation]:
    return [Operation(n, Kind.COMMIT, n * 1000, ((n, 3), (n + 1, 4)), (n,)) for n in range(1, count + 1)]


def test_round_trip(tmp_path):
    path = operations_path(tmp_path, "patched", 3)
    file = OperationFile(path, HEADER)
    file.write(some(5))
    file.write([Operation(6, Kind.RESULTS_END, 6000, ())])
    file.close()
    file.close()
    header, operations = read_operations(path)
    assert header == HEADER
    assert operations == [*some(5), Operation(6, Kind.RESULTS_END, 6000, ())]


def test_a_killed_writer_leaves_every_flushed_line(tmp_path):
    path = tmp_path / "ops.jsonl.gz"
    file = OperationFile(path, HEADER)
    file.write(some(100))
    flushed = path.read_bytes()
    assert read_operations(path)[1] == some(100)
    path.write_bytes(flushed[:-20])
    cut = read_operations(path)[1]
    assert 0 < len(cut) < 100
    assert cut == some(len(cut))


def test_a_file_that_cannot_be_ended_is_closed_all_the_same(tmp_path):
    path = tmp_path / "ops.jsonl.gz"
    file = OperationFile(path, HEADER)
    file.write(some(100))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size, hard))  # as on a full disk
    try:
        with pytest.raises(OSError, match="too large"):
            file.close()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    file.write(some(1))
    file.close()
    assert read_operations(path)[1] == some(100)


@pytest.mark.parametrize("content", [b"", b"not gzip", b"\x1f\x8b"])
def test_other_files_are_refused_in_one_line(tmp_path, content):
    path = tmp_path / "other"
    path.write_bytes(content)
    with pytest.raises(OperationFileError) as refused:
        read_operations(path)
    assert "\n" not in str(refused.value)
    assert str(path) in str(refused.value)


def test_missing_file(tmp_path):
    with pytest.raises(OperationFileError, match="name a file"):
        read_operations(tmp_path / "none")
