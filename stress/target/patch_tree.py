"""Applies a unified diff to a tree, in memory: {path: new text, None where it is deleted}.

Every line of a hunk must be found as it is. A hunk may have moved, if its lines stand in one place alone. A diff whose
every line ends in CRLF, as mail and editors leave it, is taken without for a file that has none.
A path that is absolute, climbs, or passes through a link is refused, and nothing of that patch is used.
Paths are those of a wheel (sglang/...) or of a checkout (python/sglang/...), with or without a/ and b/. Files
outside the package, a pull request's tests for instance, are left out, and so are the files of the package that
a target does without.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from stress.target.name import TargetError
from stress.target.project import Project
from stress.target.unified_diff import NOWHERE, FileDiff, Hunk, parse_diff, split_lines

Changes = dict[str, str | None]


def patch_tree(
    project: Project, root: Path, patch: str, source: str, changed: Mapping[str, str | None]
) -> Changes:
    """What `patch` makes of the tree below `root`, on top of `changed`. `source` names it in errors."""
    changes: Changes = {}
    for file in parse_diff(patch, source):
        path = _path_in_tree(project, root, file, source)
        if path is None:
            continue
        if path in changes:
            raise TargetError(f"{source}: changes {path} twice; use a patch that names each file once")
        before = changed[path] if path in changed else _read(root / path)
        if before is None and file.old != NOWHERE and not project.is_wanted(PurePosixPath(path)):
            continue  # a part of the wheel that was not unpacked
        changes[path] = _patched(_with_line_ends_of(before, file), path, before, source)
    if not changes:
        raise TargetError(f"{source}: changes no file below {project.package}/; use a patch of the package")
    return changes


def _path_in_tree(project: Project, root: Path, file: FileDiff, source: str) -> str | None:
    names = [name for name in (file.old, file.new) if name != NOWHERE]
    paths = {_inside(name, source) for name in names}
    if len(paths) != 1:
        raise TargetError(f"{source}: {file.old} becomes {file.new}; renames are not supported")
    parts = paths.pop()
    if parts[0] in project.within:
        parts = parts[1:]
    if parts[:1] != (project.package,) or len(parts) < 2:
        return None
    at = root
    for part in parts:
        at = at / part
        if at.is_symlink():
            raise TargetError(
                f"{source}: {'/'.join(parts)} passes through a link; a patch must stay in its tree"
            )
        if at.is_file() and at != root.joinpath(*parts):
            raise TargetError(f"{source}: {'/'.join(parts)} lies below a file; use a patch of this version")
    return "/".join(parts)


def _inside(name: str, source: str) -> tuple[str, ...]:
    """The name's parts without git's a/ or b/."""
    parts = PurePosixPath(name).parts
    if not parts or name.startswith("/") or "\\" in name or "\0" in name or ".." in parts or '"' in name:
        raise TargetError(f"{source}: names {name!r}, which leaves the tree; a patch must stay in its tree")
    return parts[1:] if parts[0] in ("a", "b") and len(parts) > 1 else parts


def _read(file: Path) -> str | None:
    return file.read_bytes().decode("utf-8") if file.is_file() else None


def _with_line_ends_of(before: str | None, file: FileDiff) -> FileDiff:
    ended = [line for hunk in file.hunks for line in hunk.old + hunk.new if line.endswith("\n")]
    if "\r\n" in (before or "") or not all(line.endswith("\r\n") for line in ended):
        return file
    return file._replace(
        hunks=[
            hunk._replace(
                old=[_without_cr(line) for line in hunk.old], new=[_without_cr(line) for line in hunk.new]
            )
            for hunk in file.hunks
        ]
    )


def _without_cr(line: str) -> str:
    return line.removesuffix("\n").removesuffix("\r") + ("\n" if line.endswith("\n") else "")


def _patched(file: FileDiff, path: str, before: str | None, source: str) -> str | None:
    if file.old == NOWHERE:
        if before is not None:
            raise TargetError(f"{source}: adds {path}, which is there; use a patch of this version")
        if len(file.hunks) != 1 or file.hunks[0].old:
            raise TargetError(f"{source}: adds {path}, but expects lines in it; use a unified diff")
        return "".join(file.hunks[0].new)
    if before is None:
        raise TargetError(f"{source}: changes {path}, which is not there; use a patch of this version")
    after = _apply(split_lines(before), file, path, source)
    if file.new == NOWHERE:
        if after:
            raise TargetError(f"{source}: deletes {path}, but not all of it; use a patch of this version")
        return None
    return "".join(after)


def _apply(lines: list[str], file: FileDiff, path: str, source: str) -> list[str]:
    done: list[str] = []
    at = 0
    for number, hunk in enumerate(file.hunks, start=1):
        start = _place(lines, hunk, at)
        if start is None:
            raise TargetError(
                f"{source}: hunk {number} does not fit {path} at line {hunk.start}; use a patch of this version"
            )
        done += lines[at:start] + hunk.new
        at = start + len(hunk.old)
    return done + lines[at:]


def _place(lines: list[str], hunk: Hunk, least: int) -> int | None:
    """Index of the hunk's first line: where its header says, else the only place that has its lines."""
    size = len(hunk.old)
    stated = hunk.start - 1 if size else hunk.start
    if least <= stated <= len(lines) and lines[stated : stated + size] == hunk.old:
        return stated
    if not size:
        return None
    found = [at for at in range(least, len(lines) - size + 1) if lines[at : at + size] == hunk.old]
    return found[0] if len(found) == 1 else None
