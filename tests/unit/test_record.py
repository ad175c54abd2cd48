"""The run directory: lines that survive a kill, documents written whole, directories never overwritten."""

from __future__ import annotations

import errno
import os
from datetime import datetime, timezone
from pathlib import Path

import msgspec
import pytest

from stress import manifest
from stress.record import (
    RankFile,
    RankTail,
    RunDirectory,
    RunDirectoryError,
    RunWriteError,
    make_folder,
    rank_path,
)
from stress.result import (
    Assertion,
    AssertLine,
    Finding,
    FindingLine,
    Heartbeat,
    MarkLine,
    RankResult,
    ResultLine,
    Started,
)

NOW = datetime(2030, 1, 2, 3, 4, 5, tzinfo=timezone.utc)
STARTED = Started(arm="patched", rank=3, pid=77, device="cpu", target="reference")


def heartbeat(operations: int) -> Heartbeat:
    return Heartbeat(
        virtual_us=operations * 10,
        operations=operations,
        requests_finished=1,
        requests_cancelled=0,
        running=2,
        findings=1,
    )


def finding() -> Finding:
    return Finding(
        rule="I1", pool="swa", operation=40, noticed=41, virtual_us=9, page=0, message="m", history=["h"]
    )


def test_lines_are_out_of_the_process_before_write_returns(tmp_path: Path) -> None:
    path = rank_path(tmp_path, "patched", 3)
    file = RankFile(path)
    file.write(STARTED)
    assert path.read_bytes() == msgspec.json.encode(STARTED) + b"\n"
    assert path.read_bytes().startswith(b'{"event":"started"')
    assert path == tmp_path / "ranks" / "patched-3.jsonl"


def test_tail_reads_every_kind_of_line_once(tmp_path: Path) -> None:
    file = RankFile(tmp_path / "r.jsonl")
    tail = RankTail(tmp_path / "r.jsonl")
    file.write(STARTED)
    file.write(heartbeat(1))
    assert tail.read().heartbeat == heartbeat(1)
    assertion = Assertion(operation=41, virtual_us=9, where="free_group_end", message="m")
    result = RankResult(
        arm="patched", rank=3, dp_rank=3, attn_tp_rank=0, device="cpu", pid=77, status="asserted"
    )
    for line in (
        FindingLine(finding=finding()),
        AssertLine(assertion=assertion),
        MarkLine(mark="offloaded", operation=7),
        heartbeat(2),
        ResultLine(result=result),
    ):
        file.write(line)
    tail.read()
    tail.read()
    assert (tail.started, tail.heartbeat, tail.heartbeats) == (STARTED, heartbeat(2), 2)
    assert (tail.findings, tail.assertions, tail.marks) == ([finding()], [assertion], {"offloaded": 7})
    assert tail.result == result
    assert tail.unreadable == 0


def test_a_cut_last_line_is_left_until_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    whole = msgspec.json.encode(STARTED) + b"\n"
    second = msgspec.json.encode(heartbeat(5)) + b"\n"
    path.write_bytes(whole + second[:20])
    tail = RankTail(path).read()
    assert tail.started == STARTED
    assert tail.heartbeat is None
    assert tail.unreadable == 0
    path.write_bytes(whole + second)
    assert tail.read().heartbeat == heartbeat(5)


def test_a_missing_file_is_empty_and_noise_is_counted(tmp_path: Path) -> None:
    assert RankTail(tmp_path / "none").read().started is None
    (tmp_path / "noise").write_bytes(b"\xff\x00\n" + msgspec.json.encode(STARTED) + b'\n{"event":"other"}\n')
    tail = RankTail(tmp_path / "noise").read()
    assert tail.unreadable == 2
    assert tail.started == STARTED


def test_default_directory_has_the_utc_time_and_latest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    first = RunDirectory.create(None, "seed", now=NOW)
    assert first.path == tmp_path / "runs" / "seed-20300102T030405Z"
    assert (tmp_path / "runs" / "latest").resolve() == first.path
    second = RunDirectory.create(None, "seed", now=NOW)
    assert second.path.name == "seed-20300102T030405Z-2"
    assert os.readlink(tmp_path / "runs" / "latest") == second.path.name
    assert RunDirectory.open(tmp_path / "runs" / "latest").path.resolve() == second.path


def test_a_directory_that_holds_anything_is_refused_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert RunDirectory.create(tmp_path / "empty", "seed").path == tmp_path / "empty"
    (tmp_path / "file").write_text("mine")
    for place in (tmp_path, tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(RunDirectoryError) as refusal:
            RunDirectory.create(place, "seed")
        assert "--out" in str(refusal.value)
        assert "\n" not in str(refusal.value)
    assert (tmp_path / "file").read_text() == "mine"
    with pytest.raises(RunDirectoryError):
        RunDirectory.open(tmp_path / "nowhere")


def test_documents_are_replaced_whole(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path / "run", "seed")
    with pytest.raises(RunDirectoryError, match="no verdict"):
        run.read_verdict()
    run.write_verdict({"verdict": "unknown"})
    run.write_verdict({"verdict": "pass"})
    assert run.read_verdict() == {"verdict": "pass"}
    with pytest.raises(TypeError):
        run.write_verdict({"verdict": object()})
    assert run.read_verdict() == {"verdict": "pass"}
    (run.path / "verdict.json").write_text("{")
    with pytest.raises(RunDirectoryError):
        run.read_verdict()


def test_a_document_that_cannot_be_written_leaves_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = RunDirectory.create(tmp_path / "run", "seed")
    run.write_verdict({"verdict": "unknown"})

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("stress.record.os.fsync", full)
    with pytest.raises(RunWriteError, match=r"verdict\.json: No space left on device; free some room"):
        run.write_verdict({"verdict": "pass"})
    assert run.read_verdict() == {"verdict": "unknown"}
    assert sorted(path.name for path in run.path.iterdir()) == ["ranks", "verdict.json"]


def test_a_file_system_that_turned_read_only_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = RunDirectory.create(tmp_path / "run", "seed")

    def refused(*_arguments: object, **_options: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    for call in ("open", "unlink"):  # the second clears up after the first
        monkeypatch.setattr(Path, call, refused)
    with pytest.raises(RunWriteError, match=r"verdict\.json: Read-only file system; .*another --out DIR"):
        run.write_verdict({})


def test_an_empty_directory_that_cannot_be_written_into_is_refused_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != tmp_path)
    with pytest.raises(RunDirectoryError, match=r"--out .*: cannot be written into; name a new directory"):
        make_folder(tmp_path, "seed")


def test_a_full_device_cuts_a_line_and_nothing_follows_it(tmp_path: Path) -> None:
    (tmp_path / "full").symlink_to("/dev/full")
    file = RankFile(tmp_path / "full")
    with pytest.raises(OSError, match="No space left"):
        file.write(STARTED)
    file.write(STARTED)  # closed: says nothing more
    file.close()


def test_a_rank_file_that_cannot_be_read_is_one_line(tmp_path: Path) -> None:
    for path in (tmp_path / ("x" * 300), tmp_path):
        with pytest.raises(RunDirectoryError) as refused:
            RankTail(path).read()
        assert str(refused.value).startswith(f"{path}: ")
        assert "\n" not in str(refused.value)


def test_latest_that_is_a_folder_is_kept_and_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs" / "latest").mkdir(parents=True)
    with pytest.raises(RunDirectoryError, match="--out DIR"):
        RunDirectory.create(None, "seed", now=NOW)
    assert sorted(path.name for path in (tmp_path / "runs").iterdir()) == ["latest", "seed-20300102T030405Z"]


def test_manifest_names_versions_without_importing_them(tmp_path: Path) -> None:
    document = manifest.build_manifest(
        {"name": "seed"}, seed=7, launcher="local", devices=["cpu"], command=["kvstress"], now=NOW
    )
    assert document["started_utc"] == "2030-01-02T03:04:05Z"
    assert (document["seed"], document["config"]) == (7, {"name": "seed"})
    assert document["versions"]["torch"].startswith("2.")
    assert set(document["versions"]) >= {"python", "kvstress", "ray", "cuda", "rocm"}
    run = RunDirectory.create(tmp_path / "run", "seed")
    assert msgspec.json.decode(run.write_manifest(document).read_bytes()) == document


def test_commit_is_that_of_this_checkout_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manifest, "__file__", str(tmp_path / "stress" / "manifest.py"))
    assert manifest.commit() is None
