"""The one error of trace reading and planning: one line that says what, where and the cure."""

from __future__ import annotations


class TraceError(ValueError):
    """A trace, or one row of it, that cannot be played.

    ``file`` and ``line`` (from 1; 0 = the file as a whole) say where, ``field`` names the JSON field ("" = the row),
    ``reason`` holds what is wrong and the cure. ``str()`` is one line.
    """

    def __init__(self, file: str, line: int, field: str, reason: str):
        self.file = str(file)
        self.line = int(line)
        self.field = field
        self.reason = " ".join(str(reason).split())
        super().__init__(str(self))

    def __str__(self) -> str:
        where = self.file if self.line <= 0 else f"{self.file}:{self.line}"
        return f"{where}: {self.field}: {self.reason}" if self.field else f"{where}: {self.reason}"

    def __reduce__(self):
        return (TraceError, (self.file, self.line, self.field, self.reason))


class WorkloadError(ValueError):
    """A workload setting that cannot be planned; the message names the key and the cure."""
