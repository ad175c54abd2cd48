"""Where the ranks of a cluster run: how much each asks for, what is said when it is not there, who is rank 3.

Pure functions over plain records, so that they are tested without a cluster. A placement group's bundle index
is not a GPU index: the cluster lends any free GPU to any bundle. So the actors are placed first, say where
they are, and are then numbered by node and GPU, so that on one node rank 3 is GPU 3.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping

import msgspec

from stress.launch.contract import LaunchError


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """Where one actor is. `gpu_id` is the cluster's name for its GPU, "" when it has none."""

    node_id: str
    node_ip: str
    gpu_id: str
    pid: int


def bundle(ranks: int, device: str, total: Mapping[str, float]) -> dict[str, float]:
    """What each rank asks of a cluster that has `total` (resource -> amount, free or not).

    With device "auto", GPUs are asked for where the cluster has any; without, the ranks share the cores.
    Raises LaunchError when there can never be enough of them.
    """
    cores, gpus = total.get("CPU", 0.0), total.get("GPU", 0.0)
    wants_gpu = device.startswith("cuda") or (device == "auto" and gpus > 0)
    if wants_gpu and gpus < ranks:
        raise LaunchError(
            f"ray launcher: {ranks} ranks need {ranks} GPUs, the cluster has {gpus:g}; "
            "add GPUs, lower layout.tp_size, or use --set layout.device=cpu"
        )
    share = math.floor(min(1.0, cores / ranks) * 1000) / 1000
    if share <= 0:
        raise LaunchError(f"ray launcher: {ranks} ranks, but the cluster has {cores:g} CPUs; add a node")
    return {"CPU": share, "GPU": 1.0} if wants_gpu else {"CPU": share}


def strategy(ranks: int, each: Mapping[str, float], nodes: list[Mapping[str, float]]) -> str:
    """One node for all where one is large enough: the ranks then meet on loopback. Else as few as possible."""
    fits = any(
        all(node.get(name, 0.0) >= amount * ranks - 1e-6 for name, amount in each.items()) for node in nodes
    )
    return "STRICT_PACK" if fits else "PACK"


def describe_shortage(
    ranks: int,
    each: Mapping[str, float],
    total: Mapping[str, float],
    free: Mapping[str, float],
    waited_s: float,
) -> str:
    """The line for a placement that did not come in time: what is wanted, there, and free."""
    parts = [
        f"{amount * ranks:g} {name} wanted, {total.get(name, 0.0):g} there, {free.get(name, 0.0):g} free"
        for name, amount in sorted(each.items())
    ]
    return (
        f"ray launcher: no place for {ranks} ranks within {waited_s:g} s ({'; '.join(parts)}); "
        "wait for other jobs, add nodes, or lower layout.tp_size"
    )


def refuse_shared_devices(backend: str, places: Collection[Place]) -> None:
    """Raises LaunchError where `backend` is nccl and the ranks do not have a GPU each."""
    gpus = {(place.node_id, place.gpu_id) for place in places if place.gpu_id}
    if backend == "nccl" and len(gpus) < len(places):
        raise LaunchError(
            f"ray launcher: layout.backend is nccl, but {len(places)} ranks have {len(gpus)} GPUs of their own; "
            "use --set layout.device=cuda, or --set layout.backend=auto"
        )


def rank_order(places: list[Place]) -> list[int]:
    """Actor index by rank: by node (the first actor's node first), then by GPU, then as they were made."""
    nodes = list(dict.fromkeys(place.node_id for place in places))

    def key(index: int) -> tuple[int, int, str, int]:
        gpu = places[index].gpu_id
        return (
            nodes.index(places[index].node_id),
            int(gpu) if gpu.isdigit() else 0,
            gpu,
            index,
        )

    return sorted(range(len(places)), key=key)


def rocm_visibility(environment: Mapping[str, str]) -> dict[str, str]:
    """What must be set beside ROCR_VISIBLE_DEVICES, which Ray refuses to meet alone (Slurm sets it).

    ROCR hides devices below HIP, which numbers those that are left from 0; so HIP is told all of them.
    """
    shown = environment.get("ROCR_VISIBLE_DEVICES")
    if shown is None or "HIP_VISIBLE_DEVICES" in environment:
        return {}
    devices = [entry for entry in shown.split(",") if entry.strip()]
    return {"HIP_VISIBLE_DEVICES": ",".join(str(index) for index in range(len(devices)))}
