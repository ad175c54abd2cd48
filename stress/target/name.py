"""What a target's name says. Nothing is looked up but whether a folder or a patch file is there.

reference                      built from allocator/ and linker/
sglang                         the SGLang that this Python would import
sglang==0.5.23[+EDIT]...       that release's wheel
path:DIR[+EDIT]...             the tree in DIR: the folder that holds sglang/, or a checkout
EDIT is a built-in edit (stress.target.edits), or a patch file that ends in .diff or .patch.
"""

from __future__ import annotations

import re
from pathlib import Path

import msgspec

FORMS = "reference, sglang, sglang==VERSION or path:DIR, the last two with +EDIT"
PATCH_ENDINGS = (".diff", ".patch")
_VERSION = re.compile(r"\d+(\.\d+)+((a|b|rc|\.post|\.dev)\d+)*\Z")


class TargetError(ValueError):
    """A target that the user has to name or mend otherwise: one line with the cure."""


class TargetUnavailable(RuntimeError):
    """A target that this machine can't fetch or keep now: one line."""


class Target(msgspec.Struct, frozen=True):
    """A parsed name. `kind`: reference | installed | release | folder."""

    kind: str
    version: str = ""
    folder: Path | None = None
    edits: tuple[str, ...] = ()

    def __str__(self) -> str:
        base = {
            "reference": "reference",
            "installed": "sglang",
            "release": f"sglang=={self.version}",
            "folder": f"path:{self.folder}",
        }[self.kind]
        return "+".join([base, *self.edits])


def parse_target(text: str) -> Target:
    """Raises TargetError for anything but the forms above."""
    if text == "reference":
        return Target("reference")
    if text == "sglang":
        return Target("installed")
    if text.startswith("path:"):
        return _folder(text)
    if text.startswith("sglang=="):
        version, *edits = text.removeprefix("sglang==").split("+")
        if not _VERSION.match(version):
            raise TargetError(
                f"target {text!r}: {version!r} is no version; write sglang==0.5.23, for instance"
            )
        return Target("release", version=version, edits=_edits(text, edits))
    if text.startswith(("reference+", "sglang+")):
        raise TargetError(f"target {text!r}: takes no edits; name a release, as in sglang==0.5.23+filter")
    raise TargetError(f"target {text!r}: there is none of that name; there is {FORMS}")


def _folder(text: str) -> Target:
    """The folder's name may hold a `+`: it is the longest part that is a folder."""
    parts = text.removeprefix("path:").split("+")
    for count in range(len(parts), 0, -1):
        folder = Path("+".join(parts[:count])).expanduser()
        if parts[0] and folder.is_dir():
            return Target("folder", folder=folder.resolve(), edits=_edits(text, parts[count:]))
    raise TargetError(
        f"target {text!r}: {parts[0] or 'no folder'!r} is no folder; write path:DIR, DIR holding sglang/"
    )


def _edits(text: str, names: list[str]) -> tuple[str, ...]:
    from stress.target.edits import EDITS

    for name in names:
        if name.endswith(PATCH_ENDINGS):
            if not Path(name).expanduser().is_file():
                raise TargetError(f"target {text!r}: {name} is no file; name a patch that is there")
        elif name not in EDITS:
            known = ", ".join(EDITS)
            raise TargetError(
                f"target {text!r}: unknown edit {name!r}; choose {known}, or a .diff or .patch file"
            )
    return tuple(names)
