"""A nightly's folder: a run directory for each run, and the documents about all of them.

`verdict.json`, `junit.xml` and `summary.md` are there from the start, when nothing has been shown, and are
replaced by rename after each run: a nightly that is killed leaves what it knew. A folder that holds anything is
never written into.
"""

from __future__ import annotations

import os
from pathlib import Path

from stress.evidence_file import append_whole
from stress.record import RunDirectoryError, RunWriteError


def make_folder(out: str) -> Path:
    """Makes `out`, which may be there and empty. Raises RunDirectoryError."""
    path = Path(out)
    if not out:
        raise RunDirectoryError("--out: is empty; name a new directory")
    try:
        path.mkdir(parents=True, exist_ok=True)
        if any(path.iterdir()):
            raise RunDirectoryError(
                f"--out {path}: is not empty and a nightly overwrites nothing; name a new directory"
            )
    except OSError as error:
        raise RunDirectoryError(f"--out {path}: {error.strerror}; name another directory") from error
    return path.absolute()


def replace_file(path: Path, content: bytes) -> None:
    """Writes the whole file, or keeps the one before. Raises RunWriteError."""
    part = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with part.open("wb", buffering=0) as file:
            append_whole(file, content)
            os.fsync(file.fileno())
        part.replace(path)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise RunWriteError(f"{path}: {error.strerror}; free some room, or name another place") from error
