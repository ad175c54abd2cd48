"""The machine itself: cores, memory, shared memory, limits, loopback, and the folders that a run writes.

Everything is read, but for a port that is bound on loopback and a folder that is made and removed. A container's
limits count, not the host's. Sizes are in GiB.
"""

from __future__ import annotations

import os
import resource
import shutil
import socket
import tempfile
from pathlib import Path

from stress.doctor.check import Check, State
from stress.target.cache import targets_folder

GIB = 1 << 30
# Measured: eight local ranks take 0.4 GiB together, eight Ray actors 2.5 GiB; the cluster's daemons come on top.
MEMORY_LOCAL_GIB, MEMORY_RAY_GIB = 1.0, 4.0
SHM_GIB = 0.125  # the object store of a run's own cluster, stress.launch.ray_cluster.OBJECT_STORE_BYTES
DISK_GIB = 1.0
# Measured: the coordinator holds three files open a local rank, 200 of them at 64 ranks; Ray asks for more.
FILES_LOCAL, FILES_RAY = 256, 4096
PROCESSES_LOCAL, PROCESSES_RAY = 128, 2048  # threads count: a cluster of this size starts some hundreds
CGROUP = Path("/sys/fs/cgroup")


def cores(cgroup: Path = CGROUP) -> Check:
    """The cores that this process may use, less what a cgroup's quota takes."""
    usable = float(len(os.sched_getaffinity(0))) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = _words(cgroup / "cpu.max")
    if len(quota) == 2 and quota[0].isdigit() and int(quota[1]):
        usable = min(usable, int(quota[0]) / int(quota[1]))
    return Check(
        name="cores",
        state="ok",
        found=f"{usable:g} cores",
        means="ranks share them: more ranks than cores work and take longer",
        values={"cores": usable},
    )


def memory(cgroup: Path = CGROUP, meminfo: Path = Path("/proc/meminfo")) -> Check:
    """The memory that can still be had, on the machine or up to a cgroup's limit."""
    free_gib = _meminfo_gib(meminfo)
    limit, used = _words(cgroup / "memory.max"), _words(cgroup / "memory.current")
    if limit and used and limit[0].isdigit():
        left = (int(limit[0]) - int(used[0])) / GIB
        free_gib = left if free_gib is None else min(free_gib, left)
    if free_gib is None:
        return Check(
            name="memory",
            state="warning",
            found="unknown: no /proc/meminfo",
            means=f"eight ranks need {MEMORY_LOCAL_GIB:g} GiB local, {MEMORY_RAY_GIB:g} GiB under Ray",
            cure="look for yourself before a large run",
        )
    state, means = _enough(free_gib, MEMORY_LOCAL_GIB, MEMORY_RAY_GIB)
    return Check(
        name="memory",
        state=state,
        found=f"{free_gib:.1f} GiB can be had",
        means=means,
        cure="" if state == "ok" else "free some, raise the container's limit, or lower layout.tp_size",
        values={"available_gib": round(free_gib, 2)},
    )


def shared_memory(path: Path = Path("/dev/shm")) -> Check:
    """/dev/shm: where Ray keeps its objects."""
    try:
        usage = shutil.disk_usage(path)
    except OSError as error:
        return Check(
            name="shared memory",
            state="warning",
            found=f"{path}: {error.strerror}",
            means="Ray keeps its objects in /tmp instead",
            cure="mount it; in a container: --shm-size=1g",
        )
    free_gib = usage.free / GIB
    enough = free_gib >= SHM_GIB
    return Check(
        name="shared memory",
        state="ok" if enough else "warning",
        found=f"{path}: {free_gib:.2f} of {usage.total / GIB:.2f} GiB free",
        means="" if enough else "Ray keeps its objects in /tmp instead; RCCL and NCCL need it too",
        cure="" if enough else "remove what lies there; in a container: --shm-size=1g",
        values={"free_gib": round(free_gib, 2)},
    )


def open_files(limit: int | None = None) -> Check:
    """The soft limit of open files."""
    return _limit("open files", limit, resource.RLIMIT_NOFILE, "nofile", "-n", FILES_LOCAL, FILES_RAY)


def processes(limit: int | None = None) -> Check:
    """The soft limit of processes and threads of this user."""
    return _limit("processes", limit, resource.RLIMIT_NPROC, "nproc", "-u", PROCESSES_LOCAL, PROCESSES_RAY)


def loopback() -> Check:
    """Whether a port can be had on 127.0.0.1 and reached: the ranks of one machine meet there."""
    try:
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            listener.listen(1)
            with socket.create_connection(listener.getsockname(), timeout=5):
                accepted, _ = listener.accept()
                accepted.close()
    except OSError as error:
        return Check(
            name="loopback",
            state="broken",
            found=f"127.0.0.1: {error.strerror or error}",
            means="ranks in processes can't meet; --launcher inline runs",
            cure="bring the lo interface up, or let the sandbox open sockets",
        )
    return Check(name="loopback", state="ok", found="a port on 127.0.0.1 can be had and reached")


def run_folder(here: Path | None = None) -> Check:
    """Whether a run can write `runs/` below the working directory, and has room there."""
    runs = (here or Path.cwd()) / "runs"
    place = runs if runs.exists() else runs.parent
    try:
        with tempfile.TemporaryDirectory(prefix=".kvstress-doctor-", dir=place) as folder:
            free_gib = shutil.disk_usage(folder).free / GIB
    except OSError as error:
        return Check(
            name="runs",
            state="broken",
            found=f"{runs}: can't be written ({error.strerror})",
            means="a run without --out ends before it starts",
            cure="--out DIR with a folder that can be written, or change to one",
        )
    enough = free_gib >= DISK_GIB
    return Check(
        name="runs",
        state="ok" if enough else "warning",
        found=f"{runs} can be written, {free_gib:.1f} GiB free",
        means="" if enough else "a long run that records all its operations may fill the disk",
        cure="" if enough else "make room, or --out DIR on another disk",
        values={"free_gib": round(free_gib, 2)},
    )


def cache_folder() -> Check:
    """Whether targets can be kept."""
    folder = targets_folder()
    place = next(parent for parent in (folder, *folder.parents) if parent.exists())
    writable = place.is_dir() and os.access(place, os.W_OK | os.X_OK)
    return Check(
        name="target cache",
        state="ok" if writable else "warning",
        found=f"{folder} {'can' if writable else 'can not'} be written",
        means=""
        if writable
        else "targets such as sglang==0.5.23 can't be fetched; reference and path:DIR work",
        cure="" if writable else "KVSTRESS_CACHE=DIR with a folder that can be written",
        values={"folder": str(folder), "writable": writable},
    )


def _limit(name: str, limit: int | None, number: int, word: str, flag: str, least: int, ray: int) -> Check:
    limit = resource.getrlimit(number)[0] if limit is None else limit
    if limit == resource.RLIM_INFINITY:
        return Check(name=name, state="ok", found="no limit", values={word: None})
    state, means = _enough(limit, least, ray)
    return Check(
        name=name,
        state=state,
        found=f"at most {limit} ({word})",
        means=means,
        cure="" if state == "ok" else f"ulimit {flag} {2 * ray}, as far as the hard limit lets you",
        values={word: limit},
    )


def _enough(amount: float, local: float, ray: float) -> tuple[State, str]:
    """The state, and what it means, of something that eight local ranks need less of than eight Ray actors."""
    if amount >= ray:
        return "ok", ""
    if amount >= local:
        return "warning", "eight ranks under Ray may not start; --launcher local needs less"
    return "broken", "too little for eight ranks; --launcher inline needs least"


def _meminfo_gib(path: Path) -> float | None:
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return None
    found = [line.split()[1] for line in lines if line.startswith("MemAvailable:")]
    return int(found[0]) * 1024 / GIB if found else None


def _words(path: Path) -> list[str]:
    """The words of a control file; none where there is no such file."""
    try:
        return path.read_text().split()
    except OSError:
        return []
