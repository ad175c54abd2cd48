"""Standard output and error whose reader may leave (`| head`) or whose disk may be full.

A reader that has gone wants nothing more: what is written for it is dropped, and the command goes on to the exit code
that its result has. A standard output that fails otherwise is told once, as StreamLost, and what comes after is dropped
too, or the interpreter would fail by it once more at its end. Of standard error, nobody can be told.
"""

from __future__ import annotations

import contextlib
import io
import sys
from collections.abc import Iterator
from typing import TextIO

import click

STDOUT = 1


class StreamLost(Exception):
    """Standard output can't be written: one line, why."""


class _Sink(io.FileIO):
    """The file behind a standard stream."""

    _lost = False

    def write(self, data) -> int:
        if not self._lost:
            try:
                return super().write(data)
            except OSError as error:
                self._lost = True
                if self.fileno() == STDOUT and not isinstance(error, BrokenPipeError):
                    why = f"standard output: {error.strerror}; free some space, or write elsewhere"
                    raise StreamLost(why) from None
        return memoryview(data).nbytes


def remark(words: str) -> None:
    """One line on standard error, where a command says what it does before its result is there."""
    click.echo(words, err=True)


@contextlib.contextmanager
def readers_may_leave() -> Iterator[None]:
    """Puts such streams in the place of sys.stdout and sys.stderr inside, where these are the process's own."""
    before = sys.stdout, sys.stderr
    if sys.stdout is sys.__stdout__:
        sys.stdout = _over(sys.stdout)
    if sys.stderr is sys.__stderr__:
        sys.stderr = _over(sys.stderr)
    try:
        yield
    finally:
        for stream, own in zip((sys.stdout, sys.stderr), before, strict=True):
            if stream is not own:
                with contextlib.suppress(StreamLost):  # whoever writes flushes, and has been told
                    stream.flush()
        sys.stdout, sys.stderr = before


def _over(stream: TextIO | None) -> TextIO | None:
    if stream is None:  # closed before the start
        return None
    stream.flush()
    return io.TextIOWrapper(
        io.BufferedWriter(_Sink(stream.fileno(), "w", closefd=False)),
        encoding=stream.encoding,
        errors=stream.errors,
        line_buffering=stream.line_buffering,
    )
