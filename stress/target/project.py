"""The projects whose releases and checkouts can be targets, and all that is particular to one of them.

Of a wheel, only what the memory management may need is unpacked:
sglang      sglang/*.py, sglang/srt and sglang/kernels, without the compiled server parts
vllm        the Python sources of vllm/*.py and of the packages that its scheduler and KV-cache manager import
lmcache     the Python sources
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path, PurePosixPath

import msgspec


class Project(msgspec.Struct, frozen=True):
    """`name`: its wheel's, and the first part of a target's name. `package`: the folder of its code.
    `proof`: a folder that every tree of it holds. `is_wanted`: which files of a wheel are unpacked.
    `within`: where in a checkout the package may lie. `modes`: other ways of driving its trees, named NAME-MODE==.
    `has_edits`: the built-in edits are made for it. `pool_only`: it is a pool of pages without prefix cache, window
    and linker.
    """

    name: str
    package: str
    example: str
    proof: str
    is_wanted: Callable[[PurePosixPath], bool]
    within: tuple[str, ...] = ("",)
    modes: tuple[str, ...] = ()
    has_edits: bool = False
    pool_only: bool = False


_SGLANG_PACKAGES = ("srt", "kernels")
_SGLANG_SERVER = PurePosixPath("sglang/srt/rust_extensions")
_VLLM_PACKAGES = ("v1", "utils", "distributed", "logging_utils", "multimodal", "config", "platforms")


def _wanted_of_sglang(path: PurePosixPath) -> bool:
    if len(path.parts) < 2 or path.parts[0] != "sglang":
        return False
    if path.suffix == ".so" and path.parent == _SGLANG_SERVER:
        return False
    return path.parts[1] in _SGLANG_PACKAGES or (len(path.parts) == 2 and path.suffix == ".py")


def _wanted_of_vllm(path: PurePosixPath) -> bool:
    if path.suffix != ".py" or path.parts[0] != "vllm":
        return False
    return len(path.parts) == 2 or path.parts[1] in _VLLM_PACKAGES


def _wanted_of_lmcache(path: PurePosixPath) -> bool:
    return path.suffix == ".py" and path.parts[0] == "lmcache"


PROJECTS = {
    project.name: project
    for project in (
        Project(
            name="sglang",
            package="sglang",
            example="0.5.23",
            proof="sglang/srt/mem_cache",
            is_wanted=_wanted_of_sglang,
            within=("", "python"),
            has_edits=True,
        ),
        Project(
            name="vllm",
            package="vllm",
            example="0.33.0",
            proof="vllm/v1/core",
            is_wanted=_wanted_of_vllm,
            modes=("scheduler",),
        ),
        Project(
            name="lmcache",
            package="lmcache",
            example="0.5.6",
            proof="lmcache/v1",
            is_wanted=_wanted_of_lmcache,
            pool_only=True,
        ),
    )
}
RELEASE_NAMES = {
    "-".join(filter(None, (project.name, mode))): (project, mode)
    for project in PROJECTS.values()
    for mode in ("", *project.modes)
}
"""What stands before `==` in a target's name: the project, and the mode of driving it ("": its usual one)."""


def trees_in(folder: Path) -> list[tuple[Project, Path]]:
    """Each project that `folder` holds, with the folder above its package."""
    found = []
    for project in PROJECTS.values():
        places = [folder / part for part in project.within if (folder / part / project.proof).is_dir()]
        found += [(project, place) for place in places[:1]]
    return found


def either(words: list[str]) -> str:
    """`a, b or c`."""
    return " or ".join(filter(None, (", ".join(words[:-1]), words[-1])))
