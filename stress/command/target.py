"""`kvstress target list | add | remove | check`: real trees, kept in a cache folder.

Exit 0: done; check: the tree can be driven. 1: check: it can be imported, and lacks what an engine needs.
2: a name or an edit to mend. 3: it can't be fetched, kept or imported here.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import msgspec

from stress.command.streams import remark
from stress.target.name import Target, TargetError, TargetUnavailable, parse_target

SCHEMA = 1
UNAVAILABLE = 3
REPORTS = {
    "sglang": "stress.engine.sglang.tree_report",
    "vllm": "stress.engine.vllm.tree_report",
    "lmcache": "stress.engine.lmcache.tree_report",
}
"""By project: what imports a tree and says in one JSON document what it has, and whether it is `usable`."""
_JSON = click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")


@click.group(no_args_is_help=False)
def target() -> None:
    """Fetch, edit and look at real trees: sglang==0.5.23+filter, vllm==0.33.0, lmcache==0.5.6, path:DIR+fix.diff."""


@target.command(name="list")
@_JSON
def list_(as_json: bool) -> int:
    """The trees that are kept, and where ($KVSTRESS_CACHE, else ~/.cache/kvstress)."""
    from stress.target.cache import targets_folder
    from stress.target.edits import EDITS
    from stress.target.store import list_targets

    kept = ask(list_targets)
    if isinstance(kept, int):
        return kept
    document = {"schema": SCHEMA, "folder": str(targets_folder()), "edits": list(EDITS), "targets": kept}
    if as_json:
        click.echo(msgspec.json.encode(document))
        return 0
    for entry in kept:
        click.echo(f"{entry.record.target:<32} {entry.bytes_used / 1e6:6.0f} MB  {entry.folder}")
    if not kept:
        click.echo(f"none in {targets_folder()}; add one: kvstress target add sglang==0.5.23")
    return 0


@target.command()
@click.argument("names", nargs=-1, required=True, metavar="TARGET...")
@_JSON
def add(names: tuple[str, ...], as_json: bool) -> int:
    """Fetch each TARGET and make its edits; what is there already is kept."""
    from stress.target.store import add_target

    added = []
    for name in names:
        folder = ask(lambda name=name: add_target(name))
        if isinstance(folder, int):
            return folder
        added.append({"target": name, "folder": str(folder)})
        if not as_json:
            click.echo(f"{name}  {folder}")
    if as_json:
        click.echo(msgspec.json.encode({"schema": SCHEMA, "targets": added}))
    return 0


@target.command()
@click.argument("names", nargs=-1, required=True, metavar="TARGET...")
@_JSON
def remove(names: tuple[str, ...], as_json: bool) -> int:
    """Remove each TARGET, or folder of `target list`, from the cache. Nothing else is ever removed."""
    from stress.target.store import remove_target

    removed = []
    for name in names:
        folders = ask(lambda name=name: remove_target(name))
        if isinstance(folders, int):
            return folders
        removed += [{"target": name, "folder": str(folder)} for folder in folders]
        if not as_json:
            for folder in folders:
                click.echo(f"{name}  {folder} is removed")
    if as_json:
        click.echo(msgspec.json.encode({"schema": SCHEMA, "targets": removed}))
    return 0


@target.command()
@click.argument("name", metavar="TARGET")
@_JSON
def check(name: str, as_json: bool) -> int:
    """Import TARGET in a process of its own and say what it has.

    Exit 0: an engine can be made of it. Exit 1: it lacks what an engine needs, in SGLang a segment free, a linker
    or a tree core.
    """
    facts = ask(lambda: _facts(name))
    if isinstance(facts, int):
        return facts
    if as_json:
        click.echo(msgspec.json.encode({"schema": SCHEMA, "target": name, **facts}))
    else:
        for key, value in facts.items():
            click.echo(f"{key:<12} {_words(value)}")
    return 0 if facts["usable"] else 1


def ask(question: Callable[[], Any]) -> Any:
    """The answer; exit code 3 after one line, where the target can't be had. Raises click.ClickException."""
    try:
        return question()
    except TargetError as error:
        raise click.ClickException(str(error)) from error
    except TargetUnavailable as error:
        click.echo(f"kvstress: {' '.join(str(error).split())}", err=True)
        return UNAVAILABLE


def tree_target(name: str) -> Target | None:
    """The parsed name, None for the reference, which has no tree. Raises TargetError."""
    parsed = parse_target(name)
    return None if parsed.kind == "reference" else parsed


def _facts(name: str) -> dict[str, Any]:
    from stress.target.process import ask_tree
    from stress.target.store import resolve

    target = parse_target(name)
    root: Path = resolve(name, remark)
    return ask_tree(REPORTS[target.project], root)


def _words(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(
            f"{'' if has else 'no '}{feature.replace('_', ' ')}" for feature, has in value.items()
        )
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value)
