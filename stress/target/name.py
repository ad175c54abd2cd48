"""What a target's name says. Nothing is looked up but what a folder holds and whether a patch file is there.

reference                      built from allocator/ and linker/
sglang                         the SGLang that this Python would import
sglang==0.5.23[+EDIT]...       that release's wheel
vllm==0.33.0[+PATCH]...        the same of vLLM
vllm-scheduler==0.33.0[+PATCH] the tree of vllm==0.33.0, driven by its scheduler
lmcache==0.5.6[+PATCH]...      the same of LMCache
path:DIR[+EDIT]...             the tree in DIR: the folder that holds sglang/, vllm/ or lmcache/, or a checkout
PATCH is a patch file that ends in .diff or .patch; EDIT is one, or for SGLang a built-in edit (stress.target.edits).
"""

from __future__ import annotations

import re
from pathlib import Path

import msgspec

from stress.target.project import PROJECTS, RELEASE_NAMES, Project, either, trees_in

FORMS = (
    f"reference, sglang, {', '.join(f'{head}==VERSION' for head in RELEASE_NAMES)} or path:DIR, "
    "a VERSION and a DIR with +EDIT"
)
PATCH_ENDINGS = (".diff", ".patch")
_VERSION = re.compile(r"\d+(\.\d+)+((a|b|rc|\.post|\.dev)\d+)*\Z")
_PACKAGES = either([f"{project.package}/" for project in PROJECTS.values()])


class TargetError(ValueError):
    """A target that the user has to name or mend otherwise: one line with the cure."""


class TargetUnavailable(RuntimeError):
    """A target that this machine can't fetch or keep now: one line."""


class Target(msgspec.Struct, frozen=True):
    """A parsed name. `kind`: reference | installed | release | folder.

    `project`: reference, or a key of stress.target.project.PROJECTS. `mode`: scheduler | "", of a release.
    """

    kind: str
    version: str = ""
    folder: Path | None = None
    edits: tuple[str, ...] = ()
    project: str = "sglang"
    mode: str = ""

    def __str__(self) -> str:
        base = {
            "reference": "reference",
            "installed": self.project,
            "release": f"{'-'.join(filter(None, (self.project, self.mode)))}=={self.version}",
            "folder": f"path:{self.folder}",
        }[self.kind]
        return "+".join([base, *self.edits])

    @property
    def tree(self) -> Target:
        """Without the mode: targets that differ in it alone are the same tree."""
        return msgspec.structs.replace(self, mode="")


def parse_target(text: str) -> Target:
    """Raises TargetError for anything but the forms above."""
    if text == "reference":
        return Target("reference", project="reference")
    if text == "sglang":
        return Target("installed")
    if text.startswith("path:"):
        return _folder(text)
    head, equals, rest = text.partition("==")
    if equals and head in RELEASE_NAMES:
        return _release(text, head, rest)
    if text.startswith(("reference+", "sglang+")):
        raise TargetError(f"target {text!r}: takes no edits; name a release, as in sglang==0.5.23+filter")
    raise TargetError(f"target {text!r}: there is none of that name; there is {FORMS}")


def looks_like_target(text: str) -> bool:
    """Whether a word is meant as a target, right or wrong, and not as the name of an arm, which has no such signs."""
    return text in ("reference", "sglang") or text.startswith("path:") or "==" in text


def project_of(text: str, tree: Path | None = None) -> str:
    """reference | sglang | vllm | lmcache, of a name that parse_target takes. Raises TargetError.

    `tree`: the folder that the name was resolved to. With it, a rank on another machine needs neither the
    folder nor the patches that the name was given with.
    """
    if text.startswith("path:") and tree is not None:
        return held_project(text, tree)[0].name
    head = text.partition("==")[0]
    return RELEASE_NAMES[head][0].name if head in RELEASE_NAMES else parse_target(text).project


def mode_of(text: str) -> str:
    """How the trees of a name that parse_target takes are driven: scheduler | "", the usual way."""
    head = text.partition("==")[0]
    return RELEASE_NAMES[head][1] if head in RELEASE_NAMES else ""


def held_project(text: str, folder: Path) -> tuple[Project, Path]:
    """The one project that `folder` holds, and the folder above its package. Raises TargetError.

    `text` names the target in errors.
    """
    found = trees_in(folder)
    if not found:
        proofs = either([project.proof for project in PROJECTS.values()])
        raise TargetError(f"target {text!r}: holds no {proofs}; name the folder above {_PACKAGES}")
    if len(found) > 1:
        packages = " and ".join(f"{project.package}/" for project, _ in found)
        raise TargetError(f"target {text!r}: holds {packages}; name a folder that has one of them alone")
    return found[0]


def _release(text: str, head: str, rest: str) -> Target:
    project, mode = RELEASE_NAMES[head]
    version, *edits = rest.split("+")
    if not _VERSION.match(version):
        raise TargetError(
            f"target {text!r}: {version!r} is no version; write {head}=={project.example}, for instance"
        )
    edits = _edits(text, edits, project)
    return Target("release", version=version, edits=edits, project=project.name, mode=mode)


def _folder(text: str) -> Target:
    """The folder's name may hold a `+`: it is the longest part that is a folder."""
    parts = text.removeprefix("path:").split("+")
    for count in range(len(parts), 0, -1):
        folder = Path("+".join(parts[:count])).expanduser()
        if parts[0] and folder.is_dir():
            folder = folder.resolve()
            project, _ = held_project(text, folder)
            edits = _edits(text, parts[count:], project)
            return Target("folder", folder=folder, edits=edits, project=project.name)
    raise TargetError(
        f"target {text!r}: {parts[0] or 'no folder'!r} is no folder; write path:DIR, DIR holding {_PACKAGES}"
    )


def _edits(text: str, names: list[str], project: Project) -> tuple[str, ...]:
    from stress.target.edits import EDITS

    known = EDITS if project.has_edits else {}
    for name in names:
        if name.endswith(PATCH_ENDINGS):
            if not Path(name).expanduser().is_file():
                raise TargetError(f"target {text!r}: {name} is no file; name a patch that is there")
        elif name not in known:
            what = f"edit {name!r} is for sglang trees" if name in EDITS else f"unknown edit {name!r}"
            cure = f"choose {', '.join(known)}, or a" if known else "name a"
            raise TargetError(f"target {text!r}: {what}; {cure} .diff or .patch file")
    return tuple(names)
