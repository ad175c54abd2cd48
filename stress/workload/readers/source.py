"""Bytes of a trace file, plain or gzip, cut into JSON documents with their line numbers.

A file is one document a line (JSONL), one document over many lines, or one array of documents. Whatever is wrong with
the file as a whole (missing, empty, a gzip that ends early, a cut inside the only document) raises TraceError here.
"""

from __future__ import annotations

import gzip
import re
import zlib
from collections.abc import Iterator
from pathlib import Path

import msgspec

from stress.workload.errors import TraceError

ROW_CURE = 'mend the row or set workload.on_bad_row = "skip"'
PROMPT_TOKENS_MAX = 2**31 - 1
OUTPUT_TOKENS_MAX = 10**7  # drafts of every step of an output are drawn at once
NOT_JSON = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)  # what decoding a row may raise
_GZIP, _BYTE_ORDER_MARK = b"\x1f\x8b", b"\xef\xbb\xbf"


class Source:
    """``documents()`` yields (line from 1, bytes of one JSON value)."""

    def __init__(self, path: str, data: bytes):
        self.path, self.data = path, data
        self._lines = _split(data)
        self._whole = _is_whole(data, self._lines)  # a trace or an array of traces, not one row a line

    def documents(self) -> Iterator[tuple[int, bytes]]:
        if not self._whole:
            yield from self._lines
            return
        start = self._lines[0][0]
        if not self.data.lstrip().startswith(b"["):
            yield start, self.data.strip()
            return
        try:
            items = msgspec.json.decode(self.data, type=list[msgspec.Raw])
        except NOT_JSON as error:
            raise self.cut(start, error) from None
        at = 0
        for item in items:
            text = bytes(item)
            found = self.data.find(text, at)
            at = found + len(text)
            yield 1 + self.data.count(b"\n", 0, found), text

    def first_documents(self) -> Iterator[tuple[int, bytes]]:
        """Documents for telling the format: the first ones that decode matter."""
        for count, document in enumerate(self.documents()):
            if count == 100:
                return
            yield document

    def cut(self, line: int, error: Exception, field: str = "") -> TraceError:
        """The TraceError of a document that is no JSON: cut at the end of the file, or broken inside."""
        at_end = self._whole or (line == self._lines[-1][0] and not self.data.endswith(b"\n"))
        if at_end and "truncated" in str(error):
            reason = "the file ends in the middle of a row; fetch it again or cut that row off"
            return TraceError(self.path, line, field, reason)
        place = re.search(r"\(byte (\d+)\)", str(error))
        if self._whole and place and not field:
            line = 1 + self.data.count(b"\n", 0, int(place[1]))
        cure = "mend it" if self._whole else ROW_CURE
        if isinstance(error, RecursionError):
            return TraceError(self.path, line, field, f"nested too deeply to be a trace; {cure}")
        return TraceError(self.path, line, field, f"not JSON ({error}); {cure}")


def open_source(path: str) -> Source:
    """Reads a whole file; raises TraceError (one line) when there is nothing to read."""
    name = str(path)
    if not name:
        raise TraceError("trace", 0, "", 'the name is empty; give a trace file or "generated:agentic"')
    try:
        place = Path(path)
        if place.exists() and not (place.is_file() or place.is_dir()):
            raise TraceError(name, 0, "", "is no regular file; write its content into one")
        data = place.read_bytes()
    except FileNotFoundError:
        raise TraceError(name, 0, "", 'no such file; give a trace file or "generated:agentic"') from None
    except IsADirectoryError:
        raise TraceError(name, 0, "", "is a directory; give one trace file") from None
    except TraceError:
        raise
    except (OSError, ValueError) as error:
        raise TraceError(name, 0, "", f"cannot be read ({error}); give a readable trace file") from None
    if data[:2] == _GZIP:
        try:
            data = gzip.decompress(data)
        except EOFError:
            raise TraceError(name, 0, "", "the gzip file ends early; fetch it again") from None
        except (OSError, zlib.error) as error:
            raise TraceError(name, 0, "", f"broken gzip file ({error}); fetch it again") from None
    data = data.removeprefix(_BYTE_ORDER_MARK)
    if not data.strip():
        raise TraceError(name, 0, "", "the file is empty; give a trace with at least one row")
    if b"\x00" in data[:4096]:
        raise TraceError(
            name, 1, "", "binary data, not a JSON trace; give a Weka or Mooncake file, plain or gzip"
        )
    return Source(name, data)


def _split(data: bytes) -> list[tuple[int, bytes]]:
    return [(number, line) for number, line in enumerate(data.split(b"\n"), 1) if line.strip()]


def _is_whole(data: bytes, lines: list[tuple[int, bytes]]) -> bool:
    """One value over the file: an array, or an object whose first line is not an object by itself."""
    if data.lstrip()[:1] == b"[" or len(lines) == 1:
        return True
    if data.lstrip()[:1] != b"{":
        return False
    try:
        msgspec.json.decode(lines[0][1])
        return False
    except NOT_JSON as error:
        return "truncated" in str(error) and not lines[1][1].lstrip().startswith(b"{")


def split_path(error: msgspec.ValidationError) -> tuple[str, str]:
    """(reason, field) of a msgspec error such as "Expected `int`, got `str` - at `$.requests[3].in`"."""
    reason, _, where = str(error).partition(" - at `$")
    return reason, where.rstrip("`").lstrip(".")


def no_usable_row(path: str, bad: int, first: TraceError | None) -> TraceError:
    """The error of a trace without a row that can be played: it shows what is wrong with the first one."""
    cure = "give a trace with good rows"
    if first is None:
        return TraceError(path, 0, "", f"no usable row; {cure}")
    # Leaving bad rows out is no cure where nothing would be left.
    reason = first.reason.rpartition("; ")[0] or first.reason
    return TraceError(path, first.line, first.field, f"{reason} (the first of {bad}, none is usable); {cure}")
