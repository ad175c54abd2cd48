"""The run directory: what a run leaves behind, written so that a killed run still tells what it knew.

A rank appends one JSON line an event to its own file and flushes it at once; no two processes write one
file. The coordinator follows the files while they grow, and reads a lost rank's last words from them: a last
line that was cut by a kill is left unread. `manifest.json` is written before the ranks start; so is
`verdict.json`, unknown until the run's end replaces it; both by rename, so that neither is ever seen half. A
directory that holds anything is never written into. Wall time appears here and nowhere in the core.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import msgspec

from stress.evidence_file import OpenEvidence, append_whole, open_evidence
from stress.result import (
    Assertion,
    AssertLine,
    ErrorLine,
    Finding,
    FindingLine,
    Heartbeat,
    MarkLine,
    RankError,
    RankLine,
    RankResult,
    ResultLine,
    Started,
)

_LINE_DECODER = msgspec.json.Decoder(RankLine)


class RunDirectoryError(ValueError):
    """The run directory cannot be used. One line: what, where, the cure."""


class RunWriteError(RuntimeError):
    """The run directory cannot be written any more: the machine's lack, not the user's. One line with the cure."""


def rank_path(run_dir: Path, arm: str, rank: int) -> Path:
    """`ranks/<arm>-<rank>.jsonl` below `run_dir`."""
    return run_dir / "ranks" / f"{arm}-{rank}.jsonl"


class RankFile:
    """The rank's side of its file: appends, and has each line out of the process before it returns."""

    def __init__(self, path: Path, open_file: OpenEvidence = open_evidence) -> None:
        self._file = open_file(path, False)

    def write(self, line: RankLine) -> None:
        """Appends one event. Does nothing after `close`, and after it has raised OSError."""
        if not self._file.closed:
            append_whole(self._file, msgspec.json.encode(line) + b"\n")

    def close(self) -> None:
        self._file.close()


class RankTail:
    """The reader's side of a rank file: what the rank has said so far. `read` goes on where it left off.

    A file that does not exist yet reads as empty. A last line without its newline is left for the next
    `read`; a whole line that is no event is counted in `unreadable` and passed over.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.started: Started | None = None
        self.heartbeat: Heartbeat | None = None
        self.heartbeats = 0
        self.findings: list[Finding] = []
        self.assertions: list[Assertion] = []
        self.errors: list[RankError] = []
        self.marks: dict[str, int] = {}  # mark -> operation that reached it first
        self.result: RankResult | None = None
        self.unreadable = 0
        self._offset = 0

    def read(self) -> RankTail:
        """Takes in all whole lines written since the last call; returns itself.

        Raises RunDirectoryError for a file that is there, or may be, and can't be read.
        """
        try:
            with self.path.open("rb") as file:
                file.seek(self._offset)
                block = file.read()
        except FileNotFoundError:
            return self
        except OSError as error:
            raise RunDirectoryError(
                f"{self.path}: {error.strerror}; give the arm a shorter name, or use another --out DIR"
            ) from error
        whole, newline, _cut = block.rpartition(b"\n")
        self._offset += len(whole) + len(newline)
        for line in whole.split(b"\n") if newline else ():
            self._take(line)
        return self

    def _take(self, line: bytes) -> None:
        try:
            event = _LINE_DECODER.decode(line)
        except msgspec.MsgspecError:
            self.unreadable += 1
            return
        match event:
            case Heartbeat():
                self.heartbeat = event
                self.heartbeats += 1
            case FindingLine():
                self.findings.append(event.finding)
            case AssertLine():
                self.assertions.append(event.assertion)
            case ErrorLine():
                self.errors.append(event.error)
            case MarkLine():
                self.marks.setdefault(event.mark, event.operation)
            case ResultLine():
                self.result = event.result
            case Started():
                self.started = event


class RunDirectory:
    """One run's directory. Made by `create`; `open` is for one that exists."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def create(cls, out: str | Path | None, config_name: str, *, now: datetime | None = None) -> RunDirectory:
        """Makes the folder of a run; see `make_folder`, which it raises like."""
        path = make_folder(out, config_name, now=now)
        with _no_folder(out):
            (path / "ranks").mkdir()
        return cls(path)

    @classmethod
    def open(cls, path: str | Path) -> RunDirectory:
        """An existing run. Raises RunDirectoryError when there is none."""
        if not (Path(path) / "ranks").is_dir():
            raise RunDirectoryError(f"run directory {path}: no run here; name one that holds ranks/")
        return cls(Path(path).absolute())

    def rank_path(self, arm: str, rank: int) -> Path:
        return rank_path(self.path, arm, rank)

    def read_rank(self, arm: str, rank: int) -> RankTail:
        """All that the rank's file holds now."""
        return RankTail(self.rank_path(arm, rank)).read()

    def write_manifest(self, manifest: dict[str, Any]) -> Path:
        """Writes `manifest.json` (see stress.manifest); returns its path. Raises RunWriteError."""
        return self._write_json("manifest.json", manifest)

    def write_verdict(self, verdict: dict[str, Any]) -> Path:
        """Writes `verdict.json`; returns its path. Raises RunWriteError; an earlier one is kept then."""
        return self._write_json("verdict.json", verdict)

    def read_verdict(self) -> dict[str, Any]:
        """The run's verdict. Raises RunDirectoryError when the run was ended before it wrote one."""
        path = self.path / "verdict.json"
        try:
            return msgspec.json.decode(path.read_bytes(), type=dict)
        except FileNotFoundError:
            raise RunDirectoryError(f"{path}: no verdict; the run goes on, or was killed") from None
        except OSError as error:
            raise RunDirectoryError(f"{path}: {error.strerror}; name a run that can be read") from error
        except msgspec.MsgspecError as error:
            raise RunDirectoryError(f"{path}: {error}; the file was changed after the run") from error

    def _write_json(self, name: str, document: dict[str, Any]) -> Path:
        path = self.path / name
        part = self.path / f".{name}.{os.getpid()}"
        text = msgspec.json.format(msgspec.json.encode(document), indent=2) + b"\n"
        try:
            with part.open("wb", buffering=0) as file:
                append_whole(file, text)
                os.fsync(file.fileno())
            part.replace(path)
        except OSError as error:
            with contextlib.suppress(OSError):  # not there, or on a file system that turned read-only
                part.unlink()
            told = f"{path}: {error.strerror}; free some room, or choose another --out DIR"
            raise RunWriteError(told) from error
        return path


def make_folder(out: str | Path | None, config_name: str, *, now: datetime | None = None) -> Path:
    """Makes `out`, or `runs/<config>-<UTC time>` below the working directory with `runs/latest` at it.

    Raises RunDirectoryError when `out` is not empty, is no directory, or cannot be made.
    """
    with _no_folder(out):
        if out is not None:
            return _make_named(Path(out)).absolute()
        return _make_dated(Path("runs"), config_name, now or datetime.now(timezone.utc)).absolute()


@contextlib.contextmanager
def _no_folder(out: str | Path | None) -> Iterator[None]:
    """Turns an OSError into a RunDirectoryError."""
    try:
        yield
    except OSError as error:
        place = error.filename or out or "runs"
        told = f"run directory {place}: {error.strerror}; choose another one with --out DIR"
        raise RunDirectoryError(told) from error


def _make_named(path: Path) -> Path:
    """Makes the directory that the user named; one that is empty is taken."""
    path.mkdir(parents=True, exist_ok=True)
    if any(path.iterdir()):
        why = "is not empty and a run overwrites nothing"
    elif not os.access(path, os.W_OK | os.X_OK):
        why = "cannot be written into"
    else:
        return path
    raise RunDirectoryError(f"--out {path}: {why}; name a new directory")


def _make_dated(runs: Path, config_name: str, now: datetime) -> Path:
    """Makes `runs/<config>-<UTC time>`, and `-2`, `-3` ... when runs start in one second."""
    stem = f"{config_name}-{now.astimezone(timezone.utc):%Y%m%dT%H%M%SZ}"
    runs.mkdir(exist_ok=True)
    for attempt in range(1, 1000):
        path = runs / (stem if attempt == 1 else f"{stem}-{attempt}")
        try:
            path.mkdir()
        except FileExistsError:
            continue
        link = runs / f".latest.{path.name}"  # no other run has this name
        link.symlink_to(path.name)
        try:
            link.replace(runs / "latest")
        except OSError:
            link.unlink()
            raise
        return path
    raise RunDirectoryError(f"{runs / stem}: 999 runs in one second; use --out DIR")
