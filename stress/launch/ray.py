"""One Ray actor a rank, each with a GPU of its own where the cluster has them.

The actors are placed together or not at all, numbered by GPU, and exchange over a gloo group that Ray does
not know. A rank returns its failure as data; an actor that dies is seen within milliseconds by `ray.wait`
and costs only its own result. Nothing is ever retried: a rank that Ray started again would have forgotten
what it found. The cluster outlives the arms of a run; `close` ends it if it is this run's own. An own cluster
also ends when this process is killed: Ray ties its daemons to it, and a reaper ends what these leave.
"""

from __future__ import annotations

import contextlib
import os
import time
import traceback

import msgspec
import ray
from ray.exceptions import GetTimeoutError, RayError
from ray.util.placement_group import PlacementGroup, placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from stress.launch import placement
from stress.launch.contract import LOOPBACK, LaunchError, RankOutcome, backend_of, by_arm
from stress.launch.placement import Place
from stress.launch.ray_cluster import Cluster
from stress.launch.ray_peers import PeerWatch
from stress.result import RankSpec, utf8_text

EXIT_WAIT_S = 10.0


class RankActor:
    """A rank's process. Its constructor is light; torch is imported once it knows its rank."""

    def __init__(self) -> None:
        self._ended = False

    def has_ended(self) -> bool:
        """Whether `run` is over; an actor that is running answers when it is."""
        return self._ended

    def place(self) -> bytes:
        """Where this actor is, as a Place in msgspec JSON."""
        context = ray.get_runtime_context()
        gpus = context.get_accelerator_ids().get("GPU", [])
        here = Place(
            node_id=context.get_node_id(),
            node_ip=ray.util.get_node_ip_address(),
            gpu_id=str(gpus[0]) if gpus else "",
            pid=os.getpid(),
        )
        return msgspec.json.encode(here)

    def open_store(self, host: str, timeout_s: float) -> int:
        """An arm's first rank: opens the rendezvous store and returns its port."""
        from stress.launch.exchange import open_store

        self._store, port = open_store(host, timeout_s)
        return port

    def run(
        self,
        spec_json: bytes,
        entry: str,
        gpu_id: str,
        host: str,
        port: int,
        timeout_s: float,
        ranks: list[ray.actor.ActorHandle],
    ) -> bytes:
        """Runs the rank to its end; returns its RankOutcome. The group stays open for slower peers."""
        spec = msgspec.json.decode(spec_json, type=RankSpec)
        try:
            outcome = self._run(spec, entry, gpu_id, host, port, timeout_s, PeerWatch(ranks))
        except LaunchError as error:
            outcome = RankOutcome(rank=spec.rank, lost=str(error))
        except Exception:
            outcome = RankOutcome(rank=spec.rank, lost=utf8_text(traceback.format_exc().strip()))
        self._ended = True
        return msgspec.json.encode(outcome)

    def _run(
        self,
        spec: RankSpec,
        entry: str,
        gpu_id: str,
        host: str,
        port: int,
        timeout_s: float,
        watch: PeerWatch,
    ) -> RankOutcome:
        import torch

        from stress.launch.device import assigned_device, torch_device
        from stress.launch.entry import RankRun
        from stress.launch.exchange import join_group

        torch.set_num_threads(1)
        if gpu_id:
            visible = os.environ.get("HIP_VISIBLE_DEVICES", os.environ.get("CUDA_VISIBLE_DEVICES"))
            device = assigned_device(gpu_id, visible, torch.cuda.device_count())
        else:
            device = torch_device("cpu" if spec.device == "auto" else spec.device, spec.rank)
        run = RankRun(msgspec.structs.replace(spec, device=device), entry)
        run.open()
        if run.outcome is not None:
            return run.outcome
        store = self._store if spec.index == 0 else port
        self._group = join_group(
            spec.index,
            spec.ranks,
            store,
            host=host,
            timeout_s=timeout_s,
            lost=watch.lost,
            device=device,
            backend=backend_of(spec),
        )
        outcome = run.follow(self._group)
        if outcome.result is None:
            self._group.leave()  # tells the peers
        return outcome


class RayLauncher:
    """Starts ranks as actors of one placement group."""

    name = "ray"

    def __init__(
        self,
        *,
        device: str = "auto",
        address: str | None = None,
        exchange_timeout_s: float = 120.0,
        placement_timeout_s: float = 120.0,
    ) -> None:
        self._device = device
        self._address = address
        self._exchange_timeout_s = exchange_timeout_s
        self._placement_timeout_s = placement_timeout_s
        self._cluster: Cluster | None = None  # None too where the process was in a cluster before
        self._group: PlacementGroup | None = None
        self._actors: list[ray.actor.ActorHandle] = []
        self._places: dict[int, Place] = {}
        self._pending: dict[ray.ObjectRef, int] = {}

    def start(self, specs: list[RankSpec], entry: str) -> None:
        self.stop()
        if not ray.is_initialized():
            self._cluster = Cluster(ray, self._address)
        try:
            self._place(sorted(spec.rank for spec in specs))
            placement.refuse_shared_devices(backend_of(specs[0]), self._places.values())
            for of_arm in by_arm(specs).values():
                self._run(of_arm, entry)
        except BaseException:
            self.stop()
            raise

    def poll(self, timeout_s: float) -> list[RankOutcome]:
        deadline_s = time.monotonic() + timeout_s
        ended: list[RankOutcome] = []
        while self._pending:
            wait_s = 0.0 if ended else max(0.0, deadline_s - time.monotonic())
            ready, _ = ray.wait(list(self._pending), num_returns=1, timeout=wait_s)
            if not ready:
                break
            ended += [self._take(ref) for ref in ready]
        return sorted(ended, key=lambda outcome: outcome.rank)

    def stop(self) -> None:
        self._pending.clear()
        if ray.is_initialized():
            for actor in self._actors:
                with contextlib.suppress(RayError):  # it may be dead already
                    ray.kill(actor, no_restart=True)
            if self._group is not None:
                remove_placement_group(self._group)
            self._await_exit()
        self._actors, self._places, self._group = [], {}, None

    def close(self) -> None:
        self.stop()
        if self._cluster is not None:
            self._cluster.leave()
            self._cluster = None

    def pids(self) -> dict[int, int]:
        return {rank: place.pid for rank, place in self._places.items()}

    def _place(self, numbers: list[int]) -> None:
        """Creates the actors, all or none, and learns where they are: rank numbers are given in their order."""
        ranks = len(numbers)
        each = placement.bundle(ranks, self._device, ray.cluster_resources())
        nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        self._group = placement_group([each] * ranks, strategy=placement.strategy(ranks, each, nodes))
        if not self._group.wait(self._placement_timeout_s):
            free, total = ray.available_resources(), ray.cluster_resources()
            raise LaunchError(
                placement.describe_shortage(ranks, each, total, free, self._placement_timeout_s)
            )
        for index in range(ranks):
            options = {
                "num_cpus": each["CPU"],
                "num_gpus": each.get("GPU", 0),
                "max_restarts": 0,
                "max_task_retries": 0,
                "scheduling_strategy": PlacementGroupSchedulingStrategy(
                    placement_group=self._group, placement_group_bundle_index=index
                ),
            }
            self._actors.append(ray.remote(RankActor).options(**options).remote())
        refs = [actor.place.remote() for actor in self._actors]
        places = [msgspec.json.decode(self._fetch(ref, "start its actor"), type=Place) for ref in refs]
        order = placement.rank_order(places)
        self._actors = [self._actors[index] for index in order]
        self._places = {rank: places[index] for rank, index in zip(numbers, order, strict=True)}

    def _run(self, specs: list[RankSpec], entry: str) -> None:
        """Opens the rendezvous of one arm and sets its ranks to work. `specs` are by index."""
        by_rank = dict(zip(self._places, self._actors, strict=True))
        actors, places = ([by[spec.rank] for spec in specs] for by in (by_rank, self._places))
        one_node = len({place.node_id for place in places}) == 1
        host = LOOPBACK if one_node else places[0].node_ip
        port = self._fetch(actors[0].open_store.remote(host, self._exchange_timeout_s), "open the store")
        for spec, actor, place in zip(specs, actors, places, strict=True):
            ref = actor.run.remote(
                msgspec.json.encode(spec),
                entry,
                place.gpu_id,
                host,
                port,
                self._exchange_timeout_s,
                actors,
            )
            self._pending[ref] = spec.rank

    def _fetch(self, ref: ray.ObjectRef, what: str) -> object:
        try:
            return ray.get(ref, timeout=self._placement_timeout_s)
        except (RayError, GetTimeoutError) as error:
            raise LaunchError(
                f"ray launcher: a rank could not {what}: {_one_line(error)}; see the logs of its worker"
            ) from error

    def _take(self, ref: ray.ObjectRef) -> RankOutcome:
        rank = self._pending.pop(ref)
        try:
            return msgspec.json.decode(ray.get(ref), type=RankOutcome)
        except RayError as error:
            return RankOutcome(rank=rank, lost=f"its actor died: {_one_line(error)}")

    def _await_exit(self) -> None:
        """Waits until killed actors are gone, as far as they run on this node."""
        here = ray.util.get_node_ip_address()
        pids = [place.pid for place in self._places.values() if place.node_ip == here]
        deadline_s = time.monotonic() + EXIT_WAIT_S
        while time.monotonic() < deadline_s and any(os.path.exists(f"/proc/{pid}") for pid in pids):
            time.sleep(0.02)


def _one_line(error: Exception) -> str:
    """The error's first statement; Ray goes on with a paragraph of common causes."""
    return " ".join(str(error).split()).partition(" Some common causes")[0][:400]
