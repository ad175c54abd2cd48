"""What a run was made of: configuration, seed, versions, command line, start time.

Versions come from the installed packages' metadata, so that writing a manifest imports neither torch nor ray.
The commit is named only where this package lies at the top of its own checkout: an environment that lies
inside another project's checkout must not lend its commit.
"""

from __future__ import annotations

import ast
import platform
import subprocess
import sys
from datetime import datetime, timezone
from importlib import metadata
from pathlib import Path
from typing import Any

import msgspec

from stress.config_data import from_dict
from stress.config_schema import Config, ConfigError
from stress.record import RunDirectoryError

DISTRIBUTIONS = ("kvstress", "torch", "ray", "numpy", "msgspec")


def build_manifest(
    config: dict[str, Any],
    *,
    seed: int,
    launcher: str,
    devices: list[str],
    command: list[str] | None = None,
    now: datetime | None = None,
) -> dict[str, Any]:
    """The document that becomes `manifest.json` (schema 1). `config` is the resolved one, TOML-shaped."""
    now = now or datetime.now(timezone.utc)
    return {
        "schema": 1,
        "started_utc": f"{now.astimezone(timezone.utc):%Y-%m-%dT%H:%M:%SZ}",
        "command": sys.argv if command is None else command,
        "seed": seed,
        "launcher": launcher,
        "devices": devices,
        "versions": versions(),
        "commit": commit(),
        "config": config,
    }


def read_manifest(run_dir: Path) -> tuple[dict[str, Any], Config]:
    """A run's manifest and the configuration in it. Raises RunDirectoryError where it can't be read."""
    path = run_dir / "manifest.json"
    try:
        manifest = msgspec.json.decode(path.read_bytes(), type=dict)
        return manifest, from_dict(msgspec.convert(manifest["config"], dict[str, Any]))
    except (OSError, KeyError, msgspec.MsgspecError, ConfigError) as error:
        lacks = (
            f"has no {error}" if isinstance(error, KeyError) else getattr(error, "strerror", None) or error
        )
        raise RunDirectoryError(
            f"{path}: {lacks}; without it and a verdict.json nothing can be told"
        ) from None


def versions() -> dict[str, str | None]:
    """Version by package; None for one that is not installed. `cuda`, `rocm`: what torch was built for."""
    found: dict[str, str | None] = {"python": platform.python_version()}
    for name in DISTRIBUTIONS:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = None
    built_for = _torch_build()
    return found | {"cuda": built_for.get("cuda"), "rocm": built_for.get("hip")}


def commit() -> str | None:
    """The checkout's commit, with `-dirty` when files differ from it; None outside a checkout."""
    top = Path(__file__).resolve().parent.parent
    root = _git(top, "rev-parse", "--show-toplevel")
    if root is None or Path(root).resolve() != top:
        return None
    head = _git(top, "rev-parse", "HEAD")
    changed = _git(top, "status", "--porcelain", "--untracked-files=no")
    return f"{head}-dirty" if head and changed else head


def _git(directory: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(directory), *arguments], capture_output=True, text=True, timeout=10, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def _torch_build() -> dict[str, str | None]:
    """The constants of torch's version.py, read without importing torch."""
    try:
        path = metadata.distribution("torch").locate_file("torch/version.py")
        tree = ast.parse(Path(str(path)).read_text(encoding="utf-8"))
    except (metadata.PackageNotFoundError, OSError, SyntaxError):
        return {}
    constants: dict[str, str | None] = {}
    for node in tree.body:
        target = node.target if isinstance(node, ast.AnnAssign) else getattr(node, "targets", [None])[0]
        value = getattr(node, "value", None)
        if isinstance(target, ast.Name) and isinstance(value, ast.Constant):
            constants[target.id] = value.value
    return constants
