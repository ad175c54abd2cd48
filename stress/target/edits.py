"""Built-in edits: a named change to a tree, found by its classes and functions, not by line or version.

no-cursor       takes away what sgl-project/sglang#38269 added: a load that skips SWA leaves the request's SWA
                cursor where it was. The linker's wrapper skips SWA wherever the linker has no SWA pool.
no-ring-guard   takes away what #38571 added: with a per-request ring, segment frees return pages that the ring
                never lent, at once or at the end of a free group.
filter          what #38519 proposed: a segment free drops representatives that read the padding page, on
                every device, in a free group and outside of one.
An edit of a tree without such a place is refused.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping
from pathlib import Path

from stress.target.name import TargetError
from stress.target.unified_diff import split_lines

Changes = dict[str, str | None]
_ALLOCATOR = "SWATokenToKVPoolAllocator"
_WRAPPER = "UnifiedCacheLinkerWrapper"
_RING = "self._swa_req_ring"


class _Source:
    """One file that defines `class_name`, and its functions by name."""

    def __init__(self, root: Path, class_name: str, edit: str, changed: Mapping[str, str | None]) -> None:
        self.edit = edit
        self.class_name = class_name
        self.path, self.text = _file_of_class(root, class_name, edit, changed)
        self.lines = split_lines(self.text)
        classes = [node for node in ast.parse(self.text).body if isinstance(node, ast.ClassDef)]
        owner = next(node for node in classes if node.name == class_name)
        self.functions = {node.name: node for node in owner.body if isinstance(node, ast.FunctionDef)}

    def function(self, name: str) -> ast.FunctionDef:
        if name not in self.functions:
            raise self.refused(f"{self.class_name}.{name}")
        return self.functions[name]

    def segment(self, node: ast.AST) -> str:
        return "".join(self.lines[node.lineno - 1 : node.end_lineno])

    def refused(self, what: str) -> TargetError:
        return TargetError(
            f"edit {self.edit!r}: {self.path} has no {what}; use a tree that has, or a patch file"
        )


def _no_cursor(root: Path, changed: Mapping[str, str | None]) -> Changes:
    source = _Source(root, _WRAPPER, "no-cursor", changed)
    load = source.function("load_back")
    guards = [
        node
        for node in ast.walk(load)
        if isinstance(node, ast.If)
        and ast.unparse(node.test) == "self._skip_swa"
        and "evicted_seqlen" in ast.unparse(node)
    ]
    skips = [
        node
        for node in ast.walk(source.function("__init__"))
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "self._skip_swa"
    ]
    if len(guards) != 1 or len(skips) != 1:
        raise source.refused("SWA cursor that a load moves where it skips SWA")
    lines = list(source.lines)
    guard, skip = guards[0], skips[0]
    lines[guard.lineno - 1 : guard.end_lineno] = []
    if "cache_linker.pools" not in ast.unparse(skip.value):
        rule = f"({ast.unparse(skip.value)}) or (swa is not None and PoolName.SWA not in cache_linker.pools)"
        lines[skip.lineno - 1 : skip.end_lineno] = [f"{' ' * skip.col_offset}self._skip_swa = {rule}\n"]
    return {source.path: "".join(lines)}


def _no_ring_guard(root: Path, changed: Mapping[str, str | None]) -> Changes:
    source = _Source(root, _ALLOCATOR, "no-ring-guard", changed)
    lines = list(source.lines)
    segment_free, group_end = source.function("free_swa_segment"), source.function("free_group_end")
    freeing = [segment_free, group_end]
    freeing += [source.functions[name] for name in ("_free_swa_pages",) if name in source.functions]
    if _RING not in source.segment(group_end) or sum(_RING in source.segment(node) for node in freeing) < 2:
        raise source.refused("ring guard in free_swa_segment and free_group_end")
    for node in freeing:
        for number in range(node.lineno - 1, node.end_lineno):
            lines[number] = lines[number].replace(_RING, "False")
    return {source.path: "".join(lines)}


def _filter(root: Path, changed: Mapping[str, str | None]) -> Changes:
    source = _Source(root, _ALLOCATOR, "filter", changed)
    for function in source.functions.values():
        for node in function.body:
            pages = _enqueued_pages(node)
            if pages is None:
                continue
            line = f"{' ' * node.col_offset}{pages} = {pages}[{pages} > 0]\n"
            lines = [*source.lines[: node.lineno - 1], line, *source.lines[node.lineno - 1 :]]
            return {source.path: "".join(lines)}
    raise source.refused("segment free that waits for its group's end")


def _enqueued_pages(node: ast.stmt) -> str | None:
    """The name in `if self.free_group is not None: self.swa_page_ids_group.append(NAME)`."""
    if not isinstance(node, ast.If) or "free_group" not in ast.unparse(node.test):
        return None
    for call in (part for part in ast.walk(node) if isinstance(part, ast.Call)):
        if ast.unparse(call.func) == "self.swa_page_ids_group.append" and isinstance(call.args[0], ast.Name):
            return call.args[0].id
    return None


def _file_of_class(
    root: Path, class_name: str, edit: str, changed: Mapping[str, str | None]
) -> tuple[str, str]:
    defines = re.compile(rf"^class {class_name}\b", re.MULTILINE)
    for file in sorted((root / "sglang" / "srt" / "mem_cache").rglob("*.py")):
        path = file.relative_to(root).as_posix()
        text = changed[path] if path in changed else file.read_bytes().decode("utf-8")
        if text is not None and defines.search(text):
            return path, text
    raise TargetError(
        f"edit {edit!r}: {root} has no class {class_name}; use a tree that has, or a patch file"
    )


EDITS: dict[str, Callable[[Path, Mapping[str, str | None]], Changes]] = {
    "no-cursor": _no_cursor,
    "no-ring-guard": _no_ring_guard,
    "filter": _filter,
}
"""Each takes a tree's root and what earlier edits changed, and gives {path: new text}."""
