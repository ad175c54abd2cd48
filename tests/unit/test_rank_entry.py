"""One rank's shell: what becomes of its lines, its operations, its exceptions and its result."""

from __future__ import annotations

import contextlib
import resource
import sys
import types
from collections.abc import Iterator
from pathlib import Path

import pytest

from stress.launch.contract import LaunchError
from stress.launch.entry import RankRun, load_entry
from stress.launch.inline import InlineLauncher
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


@contextlib.contextmanager
def files_up_to(size: int) -> Iterator[None]:
    """No file of this process grows beyond `size` bytes: what fits is taken, then a write fails, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def chatty(spec, emit):
    """Rank 0 writes much, the others little; what it writes into is told by the seed."""
    for turn in range(5):
        if spec.rank == 0 and spec.seed == 0:
            emit(MarkLine(mark="m" * 300, operation=turn))
        if spec.rank == 0 and spec.seed == 1:
            emit(OperationBlock(operations=[Operation(1, "poll", turn, ((turn, turn),) * 500)] * 20))
            emit(OperationBlock(operations=[Operation(n * n * n, "poll", n**5, ()) for n in range(600)]))
        yield b""
    return result(spec)


@pytest.mark.parametrize("seed", [0, 1])
def test_a_rank_whose_file_is_full_is_lost_and_the_others_go_on(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = entry(monkeypatch, chatty)
    specs = [
        RankSpec(config={}, arm="a", rank=rank, ranks=2, seed=seed, run_dir=str(tmp_path))
        for rank in range(2)
    ]
    launcher = InlineLauncher()
    outcomes = {}
    with files_up_to(1000):
        launcher.start(specs, name)
        while len(outcomes) < 2:
            outcomes |= {outcome.rank: outcome for outcome in launcher.poll(1.0)}
        launcher.close()
    assert outcomes[0].lost == f"its files could not be written: File too large ({tmp_path})"
    assert outcomes[1].result.digest_partial
    tail = RankTail(rank_path(tmp_path, "a", 0)).read()
    assert (tail.started is not None, tail.unreadable, tail.result) == (True, 0, None)


def test_a_result_that_cannot_be_written_is_a_loss(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def brief(spec, emit):
        yield b""
        return result(spec)

    run = RankRun(spec_in(tmp_path), entry(monkeypatch, brief))
    run.open()
    assert run.advance(None)
    with files_up_to(rank_path(tmp_path, "a", 0).stat().st_size + 5):
        assert not run.advance([b""])
    run.close()
    assert "File too large" in run.outcome.lost


def test_a_rank_without_a_file_is_lost_before_it_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "ranks").write_text("in the way")
    run = RankRun(spec_in(tmp_path), entry(monkeypatch, chatty))
    run.open()
    assert run.outcome.lost.startswith("its files could not be written: ")
    assert not run.advance(None)


def test_inline_ranks_get_a_device_and_none_where_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    seen = []

    def looking(spec, emit):
        seen.append(spec.device)
        yield b""
        return result(spec)

    name = entry(monkeypatch, looking)
    specs = [
        RankSpec(config={}, arm="a", rank=0, ranks=1, seed=1, device=device) for device in ("auto", "cuda")
    ]
    launcher = InlineLauncher()
    launcher.start(specs[:1], name)
    launcher.poll(1.0)
    assert seen == ["cpu"]
    with pytest.raises(LaunchError, match=r"layout\.device=cpu"):
        launcher.start(specs[1:], name)
