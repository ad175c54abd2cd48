"""What a rank writes its evidence into: a file of its own machine, or one that somebody else writes for it.

Either way a block is out of the rank's process when `write` returns, and a file that failed is closed: nothing is
ever written behind a line that was cut.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Protocol


class EvidenceFile(Protocol):
    """As much of `io.FileIO` as evidence needs. All of it raises OSError."""

    closed: bool

    def write(self, block: bytes | memoryview, /) -> int:
        """Appends; returns how many bytes were taken."""
        ...

    def close(self) -> None: ...


OpenEvidence = Callable[[Path, bool], EvidenceFile]
"""(path, whether the file must be new) -> the file, opened to append"""


def open_evidence(path: Path, new: bool) -> EvidenceFile:
    """A file of this machine, unbuffered; its folder is made. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    return path.open("xb" if new else "ab", buffering=0)


def append_whole(file: EvidenceFile, block: bytes) -> None:
    """Writes all of `block` to an unbuffered file.

    A full disk takes the part that fits and says nothing until the next write. Closes the file before it
    raises OSError, so that nothing is ever written behind a line that was cut.
    """
    rest = memoryview(block)
    try:
        while rest:
            rest = rest[file.write(rest) :]
    except OSError:
        file.close()
        raise
