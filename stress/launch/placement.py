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
    sees_run_dir: bool = True


def bundle(ranks: int, device: str, nodes: list[Mapping[str, float]]) -> dict[str, float]:
    """What each rank asks of a cluster whose nodes have `nodes` (resource -> amount, free or not).

    With device "auto", GPUs are asked for where the cluster has any; without, the ranks share the cores.
    Raises LaunchError when there can never be enough of them.
    """
    cores, gpus = _total("CPU", nodes), _total("GPU", nodes)
    wants_gpu = device.startswith("cuda") or (device == "auto" and gpus > 0)
    if wants_gpu and gpus < ranks:
        raise LaunchError(
            f"ray launcher: {ranks} ranks need {ranks} GPUs, the cluster has {_spread_out('GPU', nodes)}; "
            "add GPUs, lower layout.tp_size, or use --set layout.device=cpu"
        )
    share = _core_share(ranks, wants_gpu, nodes)
    if share <= 0:
        raise LaunchError(f"ray launcher: {ranks} ranks, but the cluster has {cores:g} CPUs; add a node")
    return {"CPU": share, "GPU": 1.0} if wants_gpu else {"CPU": share}


def _core_share(ranks: int, wants_gpu: bool, nodes: list[Mapping[str, float]]) -> float:
    """The most cores, one at most, that each rank can have: a rank's share must be free on one node."""
    shares = {1.0} | {node.get("CPU", 0.0) / count for node in nodes for count in range(1, ranks + 1)}
    # Rounded down, so that what fits by count fits by sum too; Ray counts in ten-thousandths.
    for share in sorted({math.floor(min(share, 1.0) * 1000) / 1000 for share in shares}, reverse=True):
        if share > 0 and ranks <= sum(_room({"CPU": share, "GPU": wants_gpu}, node) for node in nodes):
            return share
    return 0.0


def _room(each: Mapping[str, float], node: Mapping[str, float]) -> int:
    """How many ranks that ask for `each` have room on the node."""
    return min(math.floor(node.get(name, 0.0) / amount + 1e-6) for name, amount in each.items() if amount)


def strategy(wanted: str, ranks: int, each: Mapping[str, float], nodes: list[Mapping[str, float]]) -> str:
    """Ray's word for where the ranks go.

    `wanted` "auto": all on one node where one is large enough, though it may be busy now: they then meet on
    loopback. Else, and with "pack", as few nodes as have room now; with "spread" as many as there are.
    """
    if wanted == "spread":
        return "SPREAD"
    one = wanted == "auto" and any(_room(each, node) >= ranks for node in nodes)
    return "STRICT_PACK" if one else "PACK"


def describe_shortage(
    ranks: int,
    each: Mapping[str, float],
    strategy: str,
    nodes: list[Mapping[str, float]],
    free: Mapping[str, float],
    waited_s: float,
) -> str:
    """The line for a placement that did not come in time: what is wanted, there on which node, and free in all."""
    parts = [
        f"{amount * ranks:g} {name} wanted, {_spread_out(name, nodes)} there, {free.get(name, 0.0):g} free"
        for name, amount in sorted(each.items())
    ]
    one = " on one node" if strategy == "STRICT_PACK" else ""
    enough = all(free.get(name, 0.0) >= amount * ranks for name, amount in each.items())
    several = "use --set layout.placement=pack, " if one and enough else ""
    return (
        f"ray launcher: no place for {ranks} ranks{one} within {waited_s:g} s ({'; '.join(parts)}); "
        f"wait for other jobs, {several}add nodes, or lower layout.tp_size"
    )


def refuse_shared_devices(backend: str, places: Collection[Place]) -> None:
    """Raises LaunchError where `backend` is nccl and the ranks do not have a GPU each."""
    gpus = {(place.node_id, place.gpu_id) for place in places if place.gpu_id}
    if backend == "nccl" and len(gpus) < len(places):
        raise LaunchError(
            f"ray launcher: layout.backend is nccl, but {len(places)} ranks have {len(gpus)} GPUs of their own; "
            "use --set layout.device=cuda, or --set layout.backend=auto"
        )


def _total(name: str, nodes: list[Mapping[str, float]]) -> float:
    return sum(node.get(name, 0.0) for node in nodes)


def _spread_out(name: str, nodes: list[Mapping[str, float]]) -> str:
    """ "8", or "8 (6 + 2)" where they are on more than one node."""
    amounts = [node[name] for node in nodes if node.get(name)]
    total = f"{sum(amounts):g}"
    return total if len(amounts) < 2 else f"{total} ({' + '.join(f'{amount:g}' for amount in amounts)})"


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
