"""From plain data, as TOML gives it, to the records of a configuration.

Unknown keys are refused with their path and what they may have been meant to be, a wrong type or word with what is
expected there. The table [arms] holds its own key `mode` beside tables of any name, so it is taken apart by hand.
"""

from __future__ import annotations

import difflib
from typing import Any, get_args, get_type_hints

import msgspec

from stress.config_schema import Arm, Arms, Config, ConfigError, LinkerFault

TOP = "the top level"


def from_dict(data: dict[str, Any]) -> Config:
    """The records of plain data. Raises ConfigError `PATH: what; the cure` for a wrong key or type."""
    _refuse_unknown_keys(data)
    plain = {key: value for key, value in data.items() if key != "arms"}
    arms = data.get("arms", {})
    named = {name: _convert(arm, Arm, f"arms.{name}") for name, arm in arms.items() if name != "mode"}
    mode = {"mode": arms["mode"]} if "mode" in arms else {}
    config = _convert(plain, Config, "")
    return msgspec.structs.replace(config, arms=_convert({**mode, "named": {}}, Arms, "arms", named=named))


def _convert(data: Any, record: type, at: str, **fields: Any) -> Any:
    try:
        value = msgspec.convert(data, record)
    except msgspec.ValidationError as error:
        what, _, where = str(error).partition(" - at `$")
        path = f"{at}{where.rstrip('`')}".lstrip(".") or TOP
        raise ConfigError(f"{path}: {what}; {_cure(what, path)}") from None
    return msgspec.structs.replace(value, **fields) if fields else value


def _cure(what: str, path: str) -> str:
    if "missing required field" in what:
        return "add it"
    if "Invalid enum value" in what:
        return f"choose {' or '.join(_choices(path))}"
    return "give a value of the type that is expected"


def _choices(path: str) -> list[str]:
    """The words that the key at `path` takes."""
    table, _, key = path.rpartition(".")
    records = {"arms": Arms, **{field.name: field.type for field in msgspec.structs.fields(Config)}}
    record = Arm if table.startswith("arms.") else records[table]
    hint = get_type_hints(record)[key]
    if not all(isinstance(word, str) for word in get_args(hint)):
        hint = next(part for part in get_args(hint) if part is not type(None))  # an optional choice
    return list(get_args(hint))


def _refuse_unknown_keys(data: dict[str, Any]) -> None:
    tables = {"linker.faults": LinkerFault}
    fields = {field.name: field.type for field in msgspec.structs.fields(Config)}
    _refuse_others(data, fields, "")
    for name, value in data.items():
        if not isinstance(value, dict):
            if name not in ("name", "seed"):
                raise ConfigError(
                    f"{name}: expected a table, got {value!r}; write [{name}] and its keys below it"
                )
            continue
        if name == "arms":
            _refuse_unknown_arm_keys(value)
            continue
        if name in ("name", "seed"):
            raise ConfigError(f"{name}: expected a value, got a table; write {name} = ... at the top")
        keys = {field.name: field.type for field in msgspec.structs.fields(fields[name])}
        _refuse_others(value, keys, f"{name}.")
        for key, record in tables.items():
            table, _, field = key.partition(".")
            rows = value.get(field, []) if table == name else []
            for index, row in enumerate(rows if isinstance(rows, list) else []):
                if isinstance(row, dict):
                    _refuse_others(row, record.__struct_fields__, f"{key}[{index}].")


def _refuse_unknown_arm_keys(arms: dict[str, Any]) -> None:
    for name, arm in arms.items():
        if isinstance(arm, dict):
            _refuse_others(arm, Arm.__struct_fields__, f"arms.{name}.")
        elif name != "mode":
            raise ConfigError(
                f"arms.{name}: unknown key; [arms] has mode, and a table [arms.NAME] for each arm"
            )


def _refuse_others(table: dict[str, Any], keys: Any, at: str) -> None:
    for key in table:
        if key not in keys:
            near = difflib.get_close_matches(key, list(keys), n=1, cutoff=0.6)
            cure = f"did you mean {at}{near[0]}?" if near else f"the keys there are {', '.join(keys)}"
            raise ConfigError(f"{at}{key}: unknown key; {cure}")
