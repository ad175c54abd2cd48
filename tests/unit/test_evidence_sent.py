"""Evidence that somebody else writes: nothing is lost, nothing follows a cut line, a failure is the rank's."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
import ray
from ray.exceptions import RayError

from stress.launch import ray_evidence
from stress.launch.contract import LaunchError
from stress.launch.entry import RankRun
from stress.launch.interface import interface_of
from stress.launch.ray_evidence import EvidenceWriter, SentFile, sees, token_in
from stress.operation import Operation
from stress.operation_file import operations_path, read_operations
from stress.record import RankTail, rank_path
from stress.result import MarkLine, OperationBlock, RankResult, RankSpec


class Call:
    """A method of the writer as an actor's handle shows it; `ray.get` of what it returns is below."""

    def __init__(self, handle: Handle, name: str) -> None:
        self._handle, self._name = handle, name

    def remote(self, *arguments: object) -> object:
        if self._handle.gone:
            return RayError("the actor died")
        return getattr(self._handle.writer, self._name)(*arguments)


class Handle:
    def __init__(self) -> None:
        self.writer = EvidenceWriter()
        self.gone = False

    def __getattr__(self, name: str) -> Call:
        return Call(self, name)


@pytest.fixture
def handle(monkeypatch: pytest.MonkeyPatch) -> Handle:
    def get(answer: object) -> object:
        if isinstance(answer, RayError):
            raise answer
        return answer

    monkeypatch.setattr(ray, "get", get)
    return Handle()


def two_marks(spec, emit):
    emit(MarkLine(mark="offloaded", operation=1))
    yield b""
    emit(OperationBlock(operations=[Operation(1, "poll", 0, ())]))
    emit(MarkLine(mark="load_back", operation=2))
    yield b""
    return RankResult(arm=spec.arm, rank=0, dp_rank=0, attn_tp_rank=0, device="cpu", pid=1, status="finished")


def run_of(run_dir: Path, handle: Handle) -> RankRun:
    spec = RankSpec(config={}, arm="a", rank=0, ranks=1, seed=7, run_dir=str(run_dir))
    return RankRun(spec, f"{__name__}:two_marks", lambda path, new: SentFile(handle, path, new))


@pytest.fixture(autouse=True)
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stress.launch.entry.load_entry", lambda _dotted: two_marks)


def test_the_writer_leaves_what_the_rank_would_have_written(tmp_path: Path, handle: Handle) -> None:
    run = run_of(tmp_path, handle)
    run.open()
    assert run.advance(None)
    tail = RankTail(rank_path(tmp_path, "a", 0))
    assert tail.read().marks == {"offloaded": 1}  # while the rank goes on
    assert run.advance([b""])
    assert not run.advance([b""])
    assert tail.read().marks == {"offloaded": 1, "load_back": 2}
    assert tail.result == run.outcome.result
    assert [each.kind for each in read_operations(operations_path(tmp_path, "a", 0))[1]] == ["poll"]
    assert handle.writer._files == {}


def test_a_rank_whose_writer_is_gone_is_lost_and_what_it_had_said_stays(
    tmp_path: Path, handle: Handle
) -> None:
    run = run_of(tmp_path, handle)
    run.open()
    assert run.advance(None)
    handle.gone = True
    assert not run.advance([b""])
    assert "the actor that writes them on the driver's node is gone" in run.outcome.lost
    assert RankTail(rank_path(tmp_path, "a", 0)).read().marks == {"offloaded": 1}


def test_what_the_writer_met_is_what_the_rank_would_have_met(tmp_path: Path, handle: Handle) -> None:
    (tmp_path / "ranks").write_text("in the way")
    run = run_of(tmp_path, handle)
    run.open()
    assert run.outcome.lost == f"its files could not be written: File exists ({tmp_path})"


def test_a_directory_is_seen_by_its_token(tmp_path: Path) -> None:
    with token_in(str(tmp_path)) as token:
        assert sees(token)
        assert not sees(f"{token}-elsewhere")
        Path(token).write_text("somebody else's")
        assert not sees(token)
    assert list(tmp_path.iterdir()) == []
    with token_in(None) as token:
        assert sees(token)  # nothing is written, so nothing has to be seen
    with pytest.raises(LaunchError, match="--out DIR"), token_in(str(tmp_path / "absent")):
        pass


def test_a_token_is_not_left_behind_by_a_failing_start(tmp_path: Path) -> None:
    with pytest.raises(ValueError), token_in(str(tmp_path)):
        raise ValueError
    assert list(tmp_path.iterdir()) == []
    assert ray_evidence.sees("")


def test_gloo_is_told_the_interface_of_an_address() -> None:
    names = [name for _, name in socket.if_nameindex()]
    assert interface_of("127.0.0.1") in names
    assert interface_of("203.0.113.7") == ""  # an address for documentation: nobody's
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        try:
            asking.connect(("203.0.113.7", 9))  # sends nothing; says which address would be used
        except OSError:
            pytest.skip("this machine has no network but loopback")
        own = asking.getsockname()[0]
    assert interface_of(own) in names
