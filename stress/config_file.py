"""Finds and reads a TOML file: one that ships with the package, by its name, or a user's, by its path.

A path has a slash in it or ends in .toml. Runs and nightlies lie side by side in `configs`; a file with a table
[nightly] is a nightly. Every mistake is a ConfigError of one line, with the cure.
"""

from __future__ import annotations

from importlib import resources
from pathlib import Path
from typing import Any

import msgspec

from stress.config_schema import ConfigError

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def shipped(*, nightly: bool) -> list[str]:
    """The names of the nightlies, or of the runs, that ship with the package, sorted."""
    files = [file for file in resources.files("configs").iterdir() if file.name.endswith(".toml")]
    return sorted(
        file.name[: -len(".toml")] for file in files if (b"[nightly]" in file.read_bytes()) == nightly
    )


def read_toml(what: str, name_or_path: str, names: list[str]) -> tuple[str, dict[str, Any]]:
    """Where the file lies, for messages, and what is in it. `what` a message calls it, `names` to choose from."""
    source, text = _read(what, name_or_path, names)
    try:
        return source, msgspec.toml.decode(text.removeprefix(_BYTE_ORDER_MARK))
    except (msgspec.DecodeError, ValueError) as error:  # ValueError: no UTF-8, or an integer of 5,000 digits
        raise ConfigError(f"{source}: not TOML: {' '.join(str(error).split())}; correct that line") from None
    except RecursionError:
        raise ConfigError(f"{source}: its values are nested too deeply; write them flat") from None


def _read(what: str, name_or_path: str, names: list[str]) -> tuple[str, bytes]:
    if "/" not in name_or_path and not name_or_path.endswith(".toml"):
        if name_or_path not in names:
            choice = ", ".join(names)
            raise ConfigError(
                f"{what} {name_or_path!r}: no such name; choose {choice}, or give a path FILE.toml"
            )
        source = f"{name_or_path}.toml"
        return source, (resources.files("configs") / source).read_bytes()
    path = Path(name_or_path)
    try:
        if path.exists() and not (path.is_file() or path.is_dir()):
            raise OSError(0, "is no regular file")
        return name_or_path, path.read_bytes()
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise ConfigError(f"{name_or_path}: {why}; name a readable TOML file") from None
