"""Ray: can it be imported, which cluster would a run use and does it answer, and the traps of its environment.

No cluster is joined and none is started: an address is tried with a TCP connection that is closed at once.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping
from pathlib import Path

from stress.doctor.check import Check
from stress.doctor.child import Answer, ask
from stress.launch.placement import rocm_visibility
from stress.launch.ray_cluster import cluster_address

CURRENT_CLUSTER = Path(
    "/tmp/ray/ray_current_cluster"
)  # where `ray start` leaves the address that "auto" means
CONNECT_TIMEOUT_S = 3.0
GCS_PORT = 6379
NOSET = "RAY_EXPERIMENTAL_NOSET_"


def ask_ray() -> Answer:
    """Imports ray in a process of its own; a second or two."""
    return ask(["-c", "import json, ray; print(json.dumps({'ray': ray.__version__}))"])


def ray_check(answer: Answer) -> Check:
    """Whether ray can be imported."""
    if answer.document is not None:
        return Check(name="ray", state="ok", found=answer.document["ray"], values=answer.document)
    return Check(
        name="ray",
        state="broken",
        found=answer.why,
        means="the default launcher doesn't run; local and inline do",
        cure='pip install "ray[default]", or --launcher local',
    )


def cluster_check(environment: Mapping[str, str], current: Path = CURRENT_CLUSTER) -> Check:
    """Which cluster `run` would use from here, and whether somebody listens at its address."""
    address = cluster_address(None, environment)
    if address == "local":
        told = environment.get("RAY_ADDRESS", "")
        found = f"none to join: RAY_ADDRESS is {told!r}, a job or client address" if told else "none to join"
        means = "a run starts a cluster of its own on this machine and ends it"
        return Check(
            name="ray cluster", state="ok", found=found, means=means, values={"address": None, "joins": False}
        )
    where = address
    if address == "auto":
        where = environment.get("RAY_ADDRESS", "")
        if "://" in where or where in ("", "auto"):
            where = _text(current)
    why = _unreachable(where) if where else "no address: RAY_ADDRESS and /tmp/ray name none"
    values = {"address": where or None, "joins": True, "reachable": not why}
    if not why:
        return Check(
            name="ray cluster",
            state="ok",
            found=f"{where} answers",
            means="a run joins it and asks it for its GPUs and cores",
            values=values,
        )
    return Check(
        name="ray cluster",
        state="broken",
        found=f"{where}: {why}" if where else why,
        means="a run with the ray launcher would join it and can't",
        cure="start it, or unset RAY_ADDRESS for a cluster of the run's own",
        values=values,
    )


def visibility_check(environment: Mapping[str, str]) -> Check:
    """ROCR_VISIBLE_DEVICES without HIP_VISIBLE_DEVICES, which Ray refuses; and RAY_EXPERIMENTAL_NOSET_*."""
    unset = sorted(name for name, value in environment.items() if name.startswith(NOSET) and value)
    values = {"noset": unset, "rocr_alone": bool(rocm_visibility(environment))}
    if rocm := rocm_visibility(environment):
        hip = rocm["HIP_VISIBLE_DEVICES"]
        return Check(
            name="visibility",
            state="warning",
            found=f"ROCR_VISIBLE_DEVICES={environment['ROCR_VISIBLE_DEVICES']} without HIP_VISIBLE_DEVICES",
            means="Ray raises when it meets this; a run's own cluster is told the rest, one that is joined is not",
            cure=f"export HIP_VISIBLE_DEVICES={hip} wherever `ray start` runs (Slurm sets the first alone)",
            values=values,
        )
    if unset:
        return Check(
            name="visibility",
            state="ok",
            found=", ".join(unset),
            means="Ray hides no GPU from its actors; a rank takes the one it was lent by its index",
            values=values,
        )
    return Check(name="visibility", state="ok", found="nothing that Ray trips over", values=values)


def _unreachable(address: str) -> str:
    """Why nobody answers at HOST[:PORT]; "" where somebody does."""
    host, _, port = address.rpartition(":")
    if not host:
        host, port = address, str(GCS_PORT)
    if not port.isdigit() or not 0 < int(port) < 65536:
        return "is no HOST:PORT"
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=CONNECT_TIMEOUT_S):
            return ""
    except OSError as error:
        return f"nobody answers ({error.strerror or error})"


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
