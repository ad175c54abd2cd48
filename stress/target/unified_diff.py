"""Reads a unified diff, as `git diff` or `diff -u` write it, into files and hunks. Data, never a command.

Renames, copies, binary parts and mode changes are refused: nothing in a tree's memory management needs them.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from stress.target.name import TargetError

NOWHERE = "/dev/null"
_HUNK = re.compile(r"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")
_REFUSED = ("rename from ", "copy from ", "GIT binary patch", "Binary files ", "old mode ", "new mode ")
_NO_NEWLINE = "\\ No newline at end of file"


class Hunk(NamedTuple):
    """Lines keep their ends. `start`: 1-based line of `old` in the file; 0 in a new file."""

    start: int
    old: list[str]
    new: list[str]


class FileDiff(NamedTuple):
    """One file; `old` or `new` is /dev/null for one that is added or deleted. Names are as in the patch."""

    old: str
    new: str
    hunks: list[Hunk]


def parse_diff(text: str, source: str) -> list[FileDiff]:
    """Raises TargetError, with `source` and the line, for what is no unified diff."""
    lines = text.split("\n")
    files: list[FileDiff] = []
    at = 0
    while at < len(lines):
        line = lines[at]
        if line.startswith(_REFUSED):
            raise TargetError(
                f"{source}:{at + 1}: {line.strip()!r} is not supported; use a patch of text changes"
            )
        if line.startswith("--- ") and at + 1 < len(lines) and lines[at + 1].startswith("+++ "):
            files.append(FileDiff(_name(line), _name(lines[at + 1]), []))
            at += 2
        elif line.startswith("@@"):
            if not files:
                raise TargetError(f"{source}:{at + 1}: a hunk before any '--- FILE' line; use a unified diff")
            hunk, at = _hunk(lines, at, source)
            files[-1].hunks.append(hunk)
        else:
            at += 1
    if not files or not all(file.hunks for file in files):
        raise TargetError(f"{source}: changes nothing; use a unified diff, as from git diff")
    return files


def split_lines(text: str) -> list[str]:
    """Lines with their ends, split at newlines alone, as a diff and a compiler count them."""
    parts = [part + "\n" for part in text.split("\n")]
    parts[-1] = parts[-1][:-1]
    return parts if parts[-1] else parts[:-1]


def _name(line: str) -> str:
    """`--- a/some/file<TAB>date` names a/some/file."""
    return line[4:].split("\t", 1)[0].rstrip("\r")


def _hunk(lines: list[str], at: int, source: str) -> tuple[Hunk, int]:
    header = _HUNK.match(lines[at])
    if header is None:
        raise TargetError(f"{source}:{at + 1}: {lines[at]!r} is no hunk header; use a unified diff")
    old_left, new_left = (1 if count is None else int(count) for count in (header[2], header[4]))
    old: list[str] = []
    new: list[str] = []
    first = at + 1
    at = first
    while old_left or new_left or (at < len(lines) and lines[at].startswith(_NO_NEWLINE)):
        line = lines[at] if at < len(lines) else None
        if line is not None and line.startswith(_NO_NEWLINE):
            _cut_newline(lines[at - 1], old, new)
        elif line in ("", "\r"):  # an empty line of context whose blank was stripped
            old.append(f"{line}\n")
            new.append(f"{line}\n")
            old_left, new_left = old_left - 1, new_left - 1
        elif line is not None and line[0] in " -+":
            sign, content = line[0], line[1:] + "\n"
            if sign != "+":
                old.append(content)
                old_left -= 1
            if sign != "-":
                new.append(content)
                new_left -= 1
        else:
            old_left = -1
        if old_left < 0 or new_left < 0:
            raise TargetError(
                f"{source}:{at + 1}: the hunk of line {first} does not hold what its header counts"
            )
        at += 1
    return Hunk(int(header[1]), old, new), at


def _cut_newline(marked: str, old: list[str], new: list[str]) -> None:
    """The line before the mark is the file's last and has no end."""
    if not marked.startswith("+") and old:
        old[-1] = old[-1].rstrip("\n")
    if not marked.startswith("-") and new:
        new[-1] = new[-1].rstrip("\n")
