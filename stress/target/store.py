"""From a target's name to the folder that holds its package, fetched and edited where it was not before.

`targets/sglang-0.5.23/` holds a release, `targets/sglang-0.5.23+filter/` an edited one; each has a target.json
that says what it is and where it came from. A folder target is used where it lies; edited, it is copied. Targets
that drive one tree in different modes share it.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.machinery
import tempfile
from collections.abc import Callable
from pathlib import Path

import msgspec

from stress.target.cache import keep, remove, targets_folder
from stress.target.edited_tree import changes_of, edit_label, refuse_stale, write_edited
from stress.target.name import Target, TargetError, held_project, parse_target
from stress.target.project import PROJECTS, Project, either
from stress.target.wheel import download_wheel, sha256_of, unpack

SCHEMA = 1
RECORD = "target.json"


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """A target's target.json. `base` is the name it was edited from, `sha256` its wheel's."""

    schema: int = SCHEMA
    target: str
    version: str = ""
    wheel: str = ""
    sha256: str = ""
    base: str = ""
    edits: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()


class Kept(msgspec.Struct, frozen=True):
    """One target of the cache. `bytes_used` counts a linked file for each tree that has it."""

    name: str
    folder: str
    bytes_used: int
    record: Record


def resolve(text: str, tell: Callable[[str], None] = lambda words: None) -> Path:
    """The folder that holds the target's package; fetches and edits what is not there yet. `tell` hears of a
    fetch that has come.

    Raises TargetError for a name or an edit to mend, TargetUnavailable where it can't be fetched or kept.
    """
    target = parse_target(text)
    if target.kind == "reference":
        raise TargetError("target 'reference': is built from allocator/ and linker/ and has no tree")
    if target.kind == "installed":
        return _installed()
    project = PROJECTS[target.project]
    if target.kind == "release":
        base = _release(project, target.version, tell)
    else:
        _, base = held_project(text, target.folder)
    return _edited(project, target.tree, base) if target.edits else base


def add_target(text: str) -> Path:
    """`resolve` of what the cache keeps: a release, or an edited tree."""
    target = parse_target(text)
    if target.kind == "release" or target.edits:
        return resolve(text)
    releases = either([f"{name}==VERSION" for name in PROJECTS])
    raise TargetError(f"target {text!r}: needs no adding; add {releases}, or a target with an edit")


def remove_target(text: str) -> list[Path]:
    """Removes what the cache keeps under a target's name or a folder's; returns where it lay.

    A tree that was edited at several states of its folder is kept several times. Only folders of the cache that have
    a target.json are removed, whatever is named. Raises TargetError where none fits, and TargetUnavailable.
    """
    names = {text}
    with contextlib.suppress(
        TargetError
    ):  # a folder or a patch that is gone: then the text has to fit as it is
        names.add(str(parse_target(text).tree))
    found = [folder for folder in _kept_folders() if folder.name in names or _target_of(folder) in names]
    if not found:
        raise TargetError(
            f"target {text!r}: none of that name in {targets_folder()}; see kvstress target list"
        )
    return [remove(folder.name) for folder in found]


def _kept_folders() -> list[Path]:
    return sorted(path for path in targets_folder().glob("[!.]*") if (path / RECORD).is_file())


def _target_of(folder: Path) -> str:
    try:
        return read_record(folder).target
    except TargetError:
        return ""  # known by its folder's name alone


def list_targets() -> list[Kept]:
    """What the cache holds, by name."""
    kept = []
    for folder in _kept_folders():
        size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
        kept.append(Kept(folder.name, str(folder), size, read_record(folder)))
    return kept


def read_record(folder: Path) -> Record:
    """Raises TargetError for a record that is not ours."""
    try:
        return msgspec.json.decode((folder / RECORD).read_bytes(), type=Record)
    except msgspec.MsgspecError as error:
        raise TargetError(
            f"{folder / RECORD}: can't be read ({error}); kvstress target remove {folder.name}"
        ) from error


def _release(project: Project, version: str, tell: Callable[[str], None]) -> Path:
    def build(folder: Path) -> None:
        with tempfile.TemporaryDirectory(dir=folder.parent) as downloads:
            wheel = download_wheel(project, version, Path(downloads))
            unpack(project, wheel, folder)
            tell(f"fetched {project.name}=={version}, once, into {targets_folder()}")
            record = Record(
                target=f"{project.name}=={version}",
                version=version,
                wheel=wheel.name,
                sha256=sha256_of(wheel),
            )
        _write_record(folder, record)

    return keep(f"{project.name}-{version}", build)


def _edited(project: Project, target: Target, base: Path) -> Path:
    changes = changes_of(project, base, target.edits)
    is_release = target.kind == "release"
    name = base.name if is_release else f"path-{_state_of(project, base)}"
    record = Record(
        target=str(target),
        version=target.version,
        base=str(base) if not is_release else f"{project.name}=={target.version}",
        edits=target.edits,
        changed=tuple(sorted(changes)),
    )

    def build(folder: Path) -> None:
        # A user's own tree may be written to in place at any time: it is copied, never linked.
        write_edited(project, base, changes, folder, link=is_release)
        _write_record(folder, record)

    folder = keep("+".join([name, *(edit_label(edit) for edit in target.edits)]), build)
    refuse_stale(folder, changes)
    return folder


def _installed() -> Path:
    spec = importlib.machinery.PathFinder.find_spec("sglang")
    if spec is None or spec.origin is None:
        raise TargetError("target 'sglang': SGLang is not installed here; install it, or use sglang==VERSION")
    return Path(spec.origin).resolve().parents[1]


def _state_of(project: Project, tree: Path) -> str:
    """A short digest of where a folder lies and of each Python file's size and time of change."""
    digest = hashlib.sha256(str(tree).encode())
    for file in sorted((tree / project.package).rglob("*.py")):
        state = file.stat()
        digest.update(f"{file.relative_to(tree)} {state.st_size} {state.st_mtime_ns}\n".encode())
    return digest.hexdigest()[:12]


def _write_record(folder: Path, record: Record) -> None:
    (folder / RECORD).write_bytes(msgspec.json.format(msgspec.json.encode(record), indent=2) + b"\n")
