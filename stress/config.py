"""Finds, reads, overrides and checks a configuration.

`load_config("seed")` reads the package `configs`, `load_config("my/run.toml")` a file. Overrides are texts
`table.key=value` as `--set` takes them: the value is TOML, a bare word is a string. Every mistake is a
ConfigError of one line that names the file or the override, the key's path and the cure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from stress.config_checks import check_config
from stress.config_data import from_dict
from stress.config_file import read_toml, shipped
from stress.config_schema import (
    Arm,
    Arms,
    Check,
    Config,
    ConfigError,
    Deadlines,
    Injections,
    Layout,
    Linker,
    LinkerFault,
    Pool,
    Record,
    Serving,
    Workload,
)

__all__ = [
    "Arm",
    "Arms",
    "Check",
    "Config",
    "ConfigError",
    "Deadlines",
    "Injections",
    "Layout",
    "Linker",
    "LinkerFault",
    "Pool",
    "Record",
    "Serving",
    "Workload",
    "blame",
    "config_names",
    "from_dict",
    "load_config",
]

OVERRIDE_CHARACTERS = 400
_NAMED_KEY = re.compile(r"\b[a-z_]+\.[a-z_]+(?:\.[a-z_]+)*")
_KEY = re.compile(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*\Z")
_BARE_WORD = re.compile(r"[^\s\"'\[\]{}#,][^\n\"'\[\]{}#]*\Z")


def config_names() -> list[str]:
    """The runs that ship with the package, sorted. A nightly's matrix lies there too and is none."""
    return shipped(nightly=False)


def load_config(name_or_path: str, overrides: list[str] | None = None, seed: int | None = None) -> Config:
    """The resolved and checked configuration.

    Args:
        name_or_path: a name of `configs/`, or a path (anything with a slash or ending in .toml).
        overrides: texts `a.b=v`, applied in order.
        seed: replaces the configuration's seed.

    Raises:
        ConfigError: one line, what, where, the cure.
    """
    source, data = read_toml("config", name_or_path, config_names())
    given = [_override(data, override) for override in overrides or []]
    if seed is not None:
        data["seed"] = seed
        given.append(("seed", f"--seed {seed}"))
    if "name" not in data:
        data["name"] = Path(source).stem
    try:
        config = from_dict(data)
    except ConfigError as error:
        raise ConfigError(f"{_blamed(str(error), given, alone=True) or source}: {error}") from None
    try:
        return check_config(config)
    except ConfigError as error:
        raise ConfigError(f"{_blamed(str(error), given) or source}: {error}") from None


def blame(message: str, overrides: Iterable[str]) -> str:
    """`message`, which names keys, with the overrides in front that set one of them."""
    given = [(override.partition("=")[0].strip(), _how(override)) for override in overrides]
    blamed = _blamed(message, given)
    return f"{blamed}: {message}" if blamed else message


def _blamed(message: str, given: list[tuple[str, str]], *, alone: bool = False) -> str:
    """The overrides that set the key at the head of a message or, unless `alone`, any other that it names."""
    path = message.partition(": ")[0]
    named = {path} if alone else {path, *_NAMED_KEY.findall(message)}
    last = dict(given)  # of two that set one key, the later counts
    return ", ".join(
        how for key, how in last.items() if any(_within(name, key) or _within(key, name) for name in named)
    )


def _within(path: str, table: str) -> bool:
    return path == table or path.startswith((f"{table}.", f"{table}["))


def _how(override: str) -> str:
    """How a message calls an override: on one line, and not endless."""
    line = f"--set {' '.join(override.split())}"
    return line if len(line) <= OVERRIDE_CHARACTERS else f"{line[:OVERRIDE_CHARACTERS]}..."


def _override(data: dict[str, Any], override: str) -> tuple[str, str]:
    """Sets one value in the tables. Returns the key's path and how a message calls the override."""
    how = _how(override)
    key, equals, text = override.partition("=")
    key, text = key.strip(), text.strip()
    if not equals or not _KEY.match(key) or not text:
        raise ConfigError(f"{how}: not an assignment; write --set table.key=value")
    *tables, last = key.split(".")
    at = data
    for depth, table in enumerate(tables):
        at = at.setdefault(table, {})
        if not isinstance(at, dict):
            raise ConfigError(f"{how}: {'.'.join(tables[: depth + 1])} is a value, not a table; name a key")
    at[last] = _value(text, how)
    return key, how


def _value(text: str, how: str) -> Any:
    """The TOML value of `text`, or the text itself where it is a bare word."""
    try:
        data = msgspec.toml.decode(f"value = {text}")
        if list(data) == ["value"]:
            return data["value"]
    except RecursionError:
        raise ConfigError(f"{how}: the value is nested too deeply; write it flat") from None
    except (msgspec.DecodeError, ValueError):
        if _BARE_WORD.match(text):
            return text
    raise ConfigError(f'{how}: the value is not TOML; write a number, true, [list], "text" or a bare word')
