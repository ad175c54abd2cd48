"""What a tree's source alone tells, before any rank imports it: nothing here is executed.

A tree without a segment free has nothing to stress, and one with a syntax error can't be imported; either is one
line to its user instead of the loss of every rank. Only modules that a rank would execute are looked at.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from stress.engine.sglang.tree_finder import LEFT_OUT, TREE_MODULES
from stress.target.name import Target, TargetError
from stress.target.syntax import syntax_error

_SEGMENT_FREE = b"free_swa_segment"


def refuse_unfit(root: Path, target: Target) -> None:
    """Raises TargetError for a tree that no engine can be made of. `root`: the folder that holds `sglang/`."""
    memory = root / "sglang" / "srt" / "mem_cache"
    if not any(_SEGMENT_FREE in file.read_bytes() for file in sorted(memory.rglob("*.py"))):
        raise TargetError(f"target '{target}': has no segment free; use SGLang 0.5.20 or later")
    if target.kind != "folder":
        return  # a release is what upstream shipped, and what an edit gives was looked at when it was made
    for file in _executed(root):
        if told := syntax_error(file.read_bytes(), file.relative_to(root).as_posix()):
            raise TargetError(f"target '{target}': {told}; mend that file")


def _executed(root: Path) -> Iterator[Path]:
    """The files of the modules that stress.engine.sglang.tree_finder executes, in order."""
    left_out = [root.joinpath(*name.split(".")) for name in LEFT_OUT]
    for name in TREE_MODULES:
        module = root.joinpath(*name.split("."))
        for file in [module.with_suffix(".py"), *sorted(module.rglob("*.py"))]:
            if file.is_file() and not any(
                file == out.with_suffix(".py") or out in file.parents for out in left_out
            ):
                yield file
