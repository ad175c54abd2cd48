"""One rank's shell: what becomes of its lines, its operations, its exceptions and its result."""

from __future__ import annotations

import sys
import types
from pathlib import Path

import pytest

from stress.launch.entry import RankRun, load_entry
from stress.operation import Operation
from stress.operation_file import operations_path, read_operations
from stress.record import RankTail, rank_path
from stress.result import MarkLine, OperationBlock, RankResult, RankSpec


def result(spec: RankSpec) -> RankResult:
    return RankResult(
        arm=spec.arm, rank=spec.rank, dp_rank=0, attn_tp_rank=0, device="cpu", pid=1, status="finished"
    )


def entry(monkeypatch: pytest.MonkeyPatch, function) -> str:
    """`function` under a dotted name."""
    module = types.ModuleType("entry_under_test")
    module.rank = function
    monkeypatch.setitem(sys.modules, "entry_under_test", module)
    return "entry_under_test:rank"


def spec_in(run_dir: Path | None) -> RankSpec:
    return RankSpec(config={}, arm="a", rank=0, ranks=1, seed=7, run_dir=run_dir and str(run_dir))


def test_operations_go_to_their_own_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = [[Operation(1, "admit", 5, ((3, 0),))], [Operation(2, "poll", 9, ())]]

    def recording(spec, emit):
        emit(MarkLine(mark="offloaded", operation=1))
        for block in blocks:
            emit(OperationBlock(operations=block))
        yield b""
        return result(spec)

    run = RankRun(spec_in(tmp_path), entry(monkeypatch, recording))
    run.open()
    assert run.advance(None)
    # A reader finds them while the rank still runs.
    header, operations = read_operations(operations_path(tmp_path, "a", 0))
    assert (header.arm, header.rank, header.seed) == ("a", 0, 7)
    assert operations == [*blocks[0], *blocks[1]]
    assert not run.advance([b""])
    assert read_operations(operations_path(tmp_path, "a", 0))[1] == operations
    tail = RankTail(rank_path(tmp_path, "a", 0)).read()
    assert (tail.marks, tail.unreadable, tail.result) == ({"offloaded": 1}, 0, result(run.spec))


def test_a_rank_that_is_ended_early_still_hands_out_its_operations(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def flushing(spec, emit):
        try:
            yield b""
        finally:
            emit(OperationBlock(operations=[Operation(1, "poll", 0, ())]))

    run = RankRun(spec_in(tmp_path), entry(monkeypatch, flushing))
    run.open()
    run.advance(None)
    run.close()
    run.close()
    assert len(read_operations(operations_path(tmp_path, "a", 0))[1]) == 1
    assert run.outcome is None


def test_without_a_run_directory_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    def recording(spec, emit):
        emit(OperationBlock(operations=[Operation(1, "poll", 0, ())]))
        yield b""
        return result(spec)

    run = RankRun(spec_in(None), entry(monkeypatch, recording))
    run.open()
    assert run.advance(None)
    assert not run.advance([b""], partial=True)
    assert run.outcome.result.digest_partial
    assert list(tmp_path.iterdir()) == []


def test_what_is_no_result_is_a_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    def forgetful(spec, emit):
        yield b""

    run = RankRun(spec_in(None), entry(monkeypatch, forgetful))
    run.open()
    run.advance(None)
    assert not run.advance([b""])
    assert "returned NoneType" in run.outcome.lost


@pytest.mark.parametrize("name", ["no.such:rank", "stress.result:nothing", "stress.result", ":x"])
def test_an_entry_that_is_none_says_how_to_name_one(name: str) -> None:
    with pytest.raises(ValueError, match="package"):
        load_entry(name)
