"""The settings of a nightly's run: its seeds, and keys of a configuration with their alternatives as TOML texts.

A list gives alternatives. Of a key that takes a list (`check.require`), a list is the value and a list of lists
gives alternatives. A table is as good as a key with dots. The texts are what `--set key=` takes.
"""

from __future__ import annotations

import json
import re
from typing import Any, get_origin, get_type_hints

from stress.config import Config, ConfigError

RUNS_MAX = 10_000
LABEL_CHARACTERS = 24
_RANGE = re.compile(r"(?P<first>\d{1,18})-(?P<last>\d{1,18})\Z")
_NOT_PLAIN = re.compile(r"[^A-Za-z0-9._]+")
_BARE_WORD = re.compile(r"(?!(?:true|false|inf|nan)\Z)[A-Za-z][A-Za-z0-9_.:=+-]*\Z")


def seeds_of(given: list[int] | str) -> tuple[int, ...]:
    """The seeds as listed, or those of a range, RUNS_MAX at most. Raises ConfigError."""
    if not isinstance(given, str):
        return tuple(given)
    match = _RANGE.match(given)
    if match is None or int(match["last"]) - int(match["first"]) >= RUNS_MAX:
        raise ConfigError(
            f'nightly.seeds: {given[:80]!r} is no range of up to {RUNS_MAX} seeds; write "1-200", or a list'
        )
    return tuple(range(int(match["first"]), int(match["last"]) + 1))


def alternatives_of(settings: dict[str, Any], at: str, above: str = "") -> dict[str, list[str]]:
    """Dotted key -> its alternatives as TOML texts. `at` is the table's path. Raises ConfigError."""
    flat: dict[str, list[str]] = {}
    for name, value in settings.items():
        key = f"{above}{name}"
        if key == "seed":
            raise ConfigError(f"{at}.seed: is no setting; name seeds in nightly.seeds")
        if isinstance(value, dict):
            flat |= alternatives_of(value, at, f"{key}.")
            continue
        is_choice = isinstance(value, list) and (
            not _takes_list(key) or (bool(value) and all(isinstance(each, list) for each in value))
        )
        values = value if is_choice else [value]
        if not values:
            raise ConfigError(f"{at}.{key}: has no alternative; give at least one value")
        flat[key] = [_setting(each, f"{at}.{key}") for each in values]
        if len(set(flat[key])) < len(values):
            raise ConfigError(f"{at}.{key}: names a value twice; give each once")
    return flat


def _takes_list(key: str) -> bool:
    table, _, field = key.partition(".")
    record = get_type_hints(Config).get(table)
    hint = get_type_hints(record).get(field) if isinstance(record, type) else None
    return get_origin(hint) in (list, tuple)


def _setting(value: Any, at: str) -> str:
    """The value as `--set` takes it: a bare word where that is enough, so that a command is read with ease."""
    return value if isinstance(value, str) and _BARE_WORD.match(value) else _toml(value, at)


def _toml(value: Any, at: str) -> str:
    """The value in TOML on one line."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, list):
        return f"[{', '.join(_toml(each, at) for each in value)}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{json.dumps(key)} = {_toml(each, at)}' for key, each in value.items())}}}"
    raise ConfigError(f'{at}: {value} can\'t be set; write a number, true, [list], or "text"')


def label_of(literals: list[str], index: int) -> str:
    """What a folder's name calls an alternative: its text where that is short and no other's, else its number."""
    labels = [_NOT_PLAIN.sub("-", literal).strip("-") for literal in literals]
    label = labels[index]
    return label if 0 < len(label) <= LABEL_CHARACTERS and labels.count(label) == 1 else f"choice{index + 1}"
