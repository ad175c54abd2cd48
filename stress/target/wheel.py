"""Fetches a release's wheel with pip and unpacks what the memory management may need of it.

The wheel of this interpreter and platform is preferred. Where there is none, a Linux wheel of CPython 3.11 is
taken: its Python runs anywhere, SGLang's compiled tree core does not load, and the tree then uses its own
Python core. What of a wheel is unpacked is its project's to say (stress.target.project).
"""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
import zipfile
from pathlib import Path, PurePosixPath

from stress.target.name import TargetError, TargetUnavailable
from stress.target.project import Project

_PIP = ("pip", "download", "--no-deps", "--only-binary", ":all:", "--disable-pip-version-check", "--no-input")
_ANY_LINUX = ("--python-version", "3.11", "--implementation", "cp") + tuple(
    part
    for glibc in ("2_35", "2_34", "2_31", "2_28", "2_17")
    for part in ("--platform", f"manylinux_{glibc}_x86_64")
)


def download_wheel(project: Project, version: str, folder: Path) -> Path:
    """The wheel of project==version in `folder`.

    Raises TargetError where the registry has other versions, TargetUnavailable where it could not be asked.
    """
    wanted, failed = f"{project.name}=={version}", ""
    for chosen in ((), _ANY_LINUX):
        command = [sys.executable, "-m", *_PIP, *chosen, "-d", str(folder), wanted]
        done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
        wheels = sorted(folder.glob("*.whl"))
        if done.returncode == 0 and wheels:
            return wheels[0]
        failed = failed or done.stderr
    raise _why(wanted, failed)


def unpack(project: Project, wheel: Path, folder: Path) -> None:
    """What the project wants of it, each a new file below `folder`. Raises TargetUnavailable for a broken wheel."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            for member in archive.infolist():
                path = PurePosixPath(member.filename)
                if member.is_dir() or not project.is_wanted(path):
                    continue
                if ".." in path.parts:
                    raise TargetUnavailable(
                        f"{wheel.name}: names {member.filename}, outside of it; don't use it"
                    )
                file = folder.joinpath(*path.parts)
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(archive.read(member))
    except zipfile.BadZipFile as error:
        raise TargetUnavailable(f"{wheel.name}: is not a whole wheel ({error}); fetch it again") from error
    if not (folder / project.proof).is_dir():
        raise TargetUnavailable(f"{wheel.name}: holds no {project.proof}; use another version")


def sha256_of(file: Path) -> str:
    digest = hashlib.sha256()
    with file.open("rb") as stream:
        while block := stream.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def _why(wanted: str, stderr: str) -> Exception:
    """pip lists the versions that it could have had, or none when it reached no registry."""
    if "No module named pip" in stderr:
        return TargetUnavailable(f"{wanted}: this Python has no pip; run python -m ensurepip")
    listed = re.search(r"from versions: ([^)]*)\)", stderr)
    if listed and listed[1].strip() not in ("", "none"):
        newest = ", ".join(listed[1].split(", ")[-5:])
        return TargetError(f"target '{wanted}': there is no such release; the newest are {newest}")
    lines = [line for line in stderr.splitlines() if line.startswith("ERROR:")]
    reason = lines[0].removeprefix("ERROR:").strip() if lines else "pip failed"
    return TargetUnavailable(f"{wanted}: could not be fetched ({reason}); check the network and pip's index")
