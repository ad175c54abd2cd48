"""A rank's process on a Ray cluster: it says where it is, then runs the rank to its end.

A failure is returned as data; what the actor can't return it leaves in the rank's file. Each rank writes its own
files where its node sees the run directory, and has them written by the driver's node where it does not.
"""

from __future__ import annotations

import functools
import os
import traceback

import msgspec
import ray

from stress.evidence_file import OpenEvidence, open_evidence
from stress.launch.contract import LOOPBACK, LaunchError, RankOutcome, backend_of
from stress.launch.interface import interface_of
from stress.launch.placement import Place
from stress.launch.ray_evidence import SentFile, sees
from stress.launch.ray_peers import PeerWatch
from stress.result import RankSpec, utf8_text


class Orders(msgspec.Struct, frozen=True, kw_only=True):
    """What a rank is told once all are placed. `gpu_id` is the cluster's name for its GPU, "" for none."""

    spec: RankSpec
    entry: str
    gpu_id: str
    host: str  # of the rendezvous store, with its port
    port: int
    timeout_s: float  # for its peers at one exchange


class RankActor:
    """A rank's process. Its constructor is light; torch is imported once it knows its rank."""

    def __init__(self) -> None:
        self._ended = False

    def has_ended(self) -> bool:
        """Whether `run` is over; an actor that is running answers when it is."""
        return self._ended

    def place(self, token: str) -> bytes:
        """Where this actor is, as a Place in msgspec JSON. `token` is a file of the run directory, "" for none."""
        context = ray.get_runtime_context()
        gpus = context.get_accelerator_ids().get("GPU", [])
        here = Place(
            node_id=context.get_node_id(),
            node_ip=ray.util.get_node_ip_address(),
            gpu_id=str(gpus[0]) if gpus else "",
            pid=os.getpid(),
            sees_run_dir=sees(token),
        )
        return msgspec.json.encode(here)

    def open_store(self, host: str, timeout_s: float) -> int:
        """An arm's first rank: opens the rendezvous store and returns its port."""
        from stress.launch.exchange import open_store

        self._store, port = open_store(host, timeout_s)
        return port

    def run(
        self,
        orders_json: bytes,
        ranks: list[ray.actor.ActorHandle],
        writer: ray.actor.ActorHandle | None,
    ) -> bytes:
        """Runs the rank to its end; returns its RankOutcome. The group stays open for slower peers.

        `ranks` are the actors of the arm by index; `writer` writes this rank's files, None: it does so itself.
        """
        orders = msgspec.json.decode(orders_json, type=Orders)
        open_file = open_evidence if writer is None else functools.partial(SentFile, writer)
        try:
            outcome = self._run(orders, open_file, PeerWatch(ranks))
        except LaunchError as error:
            outcome = RankOutcome(rank=orders.spec.rank, lost=str(error))
        except Exception:
            outcome = RankOutcome(rank=orders.spec.rank, lost=utf8_text(traceback.format_exc().strip()))
        self._ended = True
        return msgspec.json.encode(outcome)

    def _run(self, orders: Orders, open_file: OpenEvidence, watch: PeerWatch) -> RankOutcome:
        from stress.launch.device import use_device
        from stress.launch.entry import RankRun
        from stress.launch.exchange import join_group
        from stress.launch.rank_process import settle_process

        settle_process()
        spec = msgspec.structs.replace(orders.spec, device=_device(orders))
        use_device(spec.device)
        run = RankRun(spec, orders.entry, open_file)
        run.open()
        if run.outcome is not None:
            return run.outcome
        if orders.host != LOOPBACK and (interface := interface_of(ray.util.get_node_ip_address())):
            os.environ.setdefault("GLOO_SOCKET_IFNAME", interface)  # a site may have chosen a faster one
        self._group = join_group(
            spec.index,
            spec.ranks,
            self._store if spec.index == 0 else orders.port,
            host=orders.host,
            timeout_s=orders.timeout_s,
            lost=watch.lost,
            device=spec.device,
            backend=backend_of(spec),
        )
        outcome = run.follow(self._group)
        if outcome.result is None:
            self._group.leave()  # tells the peers
        return outcome


def _device(orders: Orders) -> str:
    """The name of the rank's torch device: that of the GPU it was lent, or what the configuration asks for."""
    import torch

    from stress.launch.device import assigned_device, torch_device

    spec = orders.spec
    if not orders.gpu_id:
        return torch_device("cpu" if spec.device == "auto" else spec.device, spec.rank)
    visible = os.environ.get("HIP_VISIBLE_DEVICES", os.environ.get("CUDA_VISIBLE_DEVICES"))
    return assigned_device(orders.gpu_id, visible, torch.cuda.device_count())
