"""Recorded operations: `ops/<arm>-<rank>.jsonl.gz`, one JSON line an operation, in request ids and token counts.

The first line is `{"schema":1,"arm":...,"rank":...,"seed":...}`. Blocks are flushed as they come, so a file of a
rank that was killed reads up to its last whole line. Data, never pickle; page ids never stand here.
"""

from __future__ import annotations

import contextlib
import zlib
from collections.abc import Iterable, Iterator
from glob import escape
from pathlib import Path

import msgspec

from stress.evidence_file import OpenEvidence, append_whole, open_evidence
from stress.operation import Kind, Operation

SCHEMA = 1
_GZIP = 16 + zlib.MAX_WBITS


class Header(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    schema: int
    arm: str
    rank: int
    seed: int


class _Line(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    n: int
    op: Kind
    t: int
    rows: tuple[tuple[int, int], ...] = ()
    a: tuple[int, ...] | None = None


class OperationFileError(ValueError):
    """The file holds no operations. One line: what, where, the cure."""


def operations_path(run_dir: Path, arm: str, rank: int) -> Path:
    return run_dir / "ops" / f"{arm}-{rank}.jsonl.gz"


class OperationFile:
    """Appends blocks of operations to a new file. After an OSError it is closed and writes nothing more."""

    def __init__(self, path: Path, header: Header, open_file: OpenEvidence = open_evidence) -> None:
        self._file = open_file(path, True)
        self._gzip = zlib.compressobj(level=1, wbits=_GZIP)
        self._put(msgspec.json.encode(header) + b"\n")

    def write(self, operations: Iterable[Operation]) -> None:
        lines = [msgspec.json.encode(_Line(*operation)) for operation in operations]
        if lines:
            self._put(b"\n".join(lines) + b"\n")

    def _put(self, block: bytes) -> None:
        if not self._file.closed:
            append_whole(self._file, self._gzip.compress(block) + self._gzip.flush(zlib.Z_SYNC_FLUSH))

    def close(self) -> None:
        """Ends the gzip stream. Idempotent. Raises OSError where its end can't be written, once."""
        if not self._file.closed:
            append_whole(self._file, self._gzip.flush(zlib.Z_FINISH))
            self._file.close()


def read_operations(path: Path) -> tuple[Header, list[Operation]]:
    """The header and all whole lines. A stream that a kill cut short ends at its last whole line.

    Raises OperationFileError for a file that is missing or is no such file.
    """
    lines = _whole_lines(path)
    try:
        header = msgspec.json.decode(next(lines, b""), type=Header)
        operations = [
            Operation(line.n, line.op, line.t, line.rows, line.a)
            for line in (msgspec.json.decode(line, type=_Line) for line in lines)
        ]
    except msgspec.MsgspecError as error:
        raise OperationFileError(
            f"{path}: no recorded operations ({error}); name a file below a run's ops/"
        ) from None
    if header.schema != SCHEMA:
        raise OperationFileError(
            f"{path}: schema {header.schema} and this version reads {SCHEMA}; use the version that wrote it"
        )
    return header, operations


def read_arm(run_dir: Path, arm: str) -> dict[int, list[Operation]]:
    """An arm's recorded operations by rank. A rank that recorded nothing that can be read is not there."""
    recorded = {}
    for path in sorted((run_dir / "ops").glob(f"{escape(arm)}-*.jsonl.gz")):
        with contextlib.suppress(OperationFileError):  # the rank was lost before its first block was out
            header, operations = read_operations(path)
            if header.arm == arm:
                recorded[header.rank] = operations
    return recorded


def _whole_lines(path: Path) -> Iterator[bytes]:
    inflate = zlib.decompressobj(wbits=_GZIP)
    try:
        text = inflate.decompress(path.read_bytes())
    except OSError as error:
        raise OperationFileError(f"{path}: {error.strerror}; name a file below a run's ops/") from None
    except zlib.error as error:
        raise OperationFileError(f"{path}: {error}; name a file below a run's ops/") from None
    yield from text.split(b"\n")[:-1]
