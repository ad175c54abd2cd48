"""The cache folder: `$KVSTRESS_CACHE`, else `~/.cache/kvstress`. Its `targets/NAME/` is whole or not there.

A target is built in a folder of its own beside it, and renamed when it is done; who comes second takes the
first one's. It goes the same way back. What a killed process left is removed by the next one on that machine.
"""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
from collections.abc import Callable
from pathlib import Path

from stress.target.name import TargetUnavailable

_BUILDING = ".building-"


def targets_folder() -> Path:
    """Where targets are kept; not made yet."""
    chosen = os.environ.get("KVSTRESS_CACHE")
    return (Path(chosen).expanduser() if chosen else Path.home() / ".cache" / "kvstress") / "targets"


def keep(name: str, build: Callable[[Path], None]) -> Path:
    """`targets/name`, made by `build(empty folder)` unless it is there.

    Raises what `build` raises, and TargetUnavailable for what the disk refuses.
    """
    final = targets_folder() / name
    if final.is_dir():
        return final
    building = _new_folder()
    try:
        made = building / "tree"
        made.mkdir()
        build(made)
        _rename(made, final)
    except OSError as error:
        raise TargetUnavailable(
            f"{final}: can't be made ({error}); make room, or set KVSTRESS_CACHE"
        ) from error
    finally:
        shutil.rmtree(building, ignore_errors=True)
    return final


def remove(name: str) -> Path:
    """Takes `targets/name` away, first out of sight and then file by file; returns where it lay.

    A link is taken away, not what it points at. Raises TargetUnavailable for what the disk refuses.
    """
    final = targets_folder() / name
    leaving = _new_folder()
    try:
        os.rename(final, leaving / "tree")
    except OSError as error:
        raise TargetUnavailable(f"{final}: can't be removed ({error.strerror}); remove it by hand") from error
    finally:
        shutil.rmtree(leaving, ignore_errors=True)
    return final


def _new_folder() -> Path:
    folder = targets_folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _remove_left_behind(folder)
        return Path(tempfile.mkdtemp(prefix=f"{_mine()}{os.getpid()}-", dir=folder))
    except OSError as error:
        raise TargetUnavailable(
            f"{folder}: can't be written ({error.strerror}); set KVSTRESS_CACHE to a folder that can"
        ) from error


def _rename(made: Path, final: Path) -> None:
    try:
        os.rename(made, final)
    except OSError:
        if not final.is_dir():
            raise


def _remove_left_behind(folder: Path) -> None:
    for left in folder.glob(f"{_mine()}*"):
        pid = left.name.removeprefix(_mine()).split("-", 1)[0]
        if pid.isdigit() and not _is_alive(int(pid)):
            shutil.rmtree(left, ignore_errors=True)


def _mine() -> str:
    """Leftovers carry the machine's name: a cache may be shared, a process id is not."""
    return f"{_BUILDING}{socket.gethostname().replace('-', '_')}-"


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
