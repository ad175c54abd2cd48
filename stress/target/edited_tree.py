"""Makes an edited tree: a hard-linked copy of its base, with new files where the edits change something.

A file that is linked is never written, so a base keeps what it is whatever is edited. What each edit gives is
computed again when the tree is asked for: one that differs is stale, or was written to, and is refused.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from pathlib import Path

from stress.target.edits import EDITS
from stress.target.name import PATCH_ENDINGS, TargetError
from stress.target.patch_tree import Changes, patch_tree
from stress.target.project import Project
from stress.target.syntax import syntax_error


def changes_of(project: Project, base: Path, edits: tuple[str, ...]) -> Changes:
    """{path: new text, None where it is deleted} of the edits, one on top of the other.

    Raises TargetError for an edit that does not fit, and for a patch that leaves what is no Python.
    """
    changes: Changes = {}
    for name in edits:
        if name.endswith(PATCH_ENDINGS):
            patched = patch_tree(project, base, _patch_text(name), name, changes)
            _refuse_broken(name, patched)
            changes |= patched
        else:
            changes |= EDITS[name](base, changes)
    return changes


def edit_label(name: str) -> str:
    """The edit's part of a folder's name: a patch is known by what it holds."""
    if not name.endswith(PATCH_ENDINGS):
        return name
    digest = hashlib.sha256(_patch_text(name).encode()).hexdigest()
    return f"{Path(name).stem}-{digest[:12]}"


def write_edited(project: Project, base: Path, changes: Changes, folder: Path, *, link: bool) -> None:
    """Fills the empty `folder` with the package in `base` as changed.

    `link`: hard links where the disk allows them.
    """
    for directory, names, files in os.walk(base / project.package):
        names[:] = sorted(name for name in names if name != "__pycache__")
        here = Path(directory)
        there = folder / here.relative_to(base)
        there.mkdir(parents=True)
        for name in sorted(files):
            if (here / name).relative_to(base).as_posix() not in changes:
                _link_or_copy(here / name, there / name, link)
    for path, text in changes.items():
        if text is not None:
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_bytes(text.encode())


def refuse_stale(folder: Path, changes: Changes) -> None:
    """Raises TargetError where the tree in `folder` does not hold what the edits give."""
    for path, text in changes.items():
        file = folder / path
        if (file.read_bytes().decode("utf-8", "replace") if file.is_file() else None) != text:
            raise TargetError(
                f"{folder}: its {path} is not what the edits make; remove that folder, then add it again"
            )


def _refuse_broken(patch: str, changes: Changes) -> None:
    for path, text in changes.items():
        told = syntax_error(text, path) if text is not None and path.endswith(".py") else ""
        if told:
            raise TargetError(f"{patch}: leaves {told}; mend the patch")


def _link_or_copy(source: Path, to: Path, link: bool) -> None:
    if link:
        try:
            os.link(source, to)
            return
        except OSError:
            pass  # another disk, or one without hard links
    shutil.copy2(source, to)


def _patch_text(name: str) -> str:
    try:
        return Path(name).expanduser().read_bytes().decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise TargetError(f"{name}: can't be read as a patch ({error}); use a text file in UTF-8") from error
