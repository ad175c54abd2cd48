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
from collections.abc import Collection

import msgspec
import ray
from ray.exceptions import ActorDiedError, GetTimeoutError, RayError
from ray.util.placement_group import PlacementGroup, placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from stress.launch import placement
from stress.launch.contract import LOOPBACK, LaunchError, RankOutcome, backend_of, by_arm
from stress.launch.placement import Place
from stress.launch.ray_actor import Orders, RankActor
from stress.launch.ray_cluster import Cluster
from stress.launch.ray_evidence import start_writer, token_in
from stress.launch.ray_head import HeadWatch, end_workers
from stress.result import RankSpec

EXIT_WAIT_S = 10.0


class RayLauncher:
    """Starts ranks as actors of one placement group."""

    name = "ray"

    def __init__(
        self,
        *,
        device: str = "auto",
        wanted: str = "auto",
        address: str | None = None,
        exchange_timeout_s: float = 120.0,
        placement_timeout_s: float = 120.0,
    ) -> None:
        self._device = device
        self._wanted = wanted
        self._address = address
        self._exchange_timeout_s = exchange_timeout_s
        self._placement_timeout_s = placement_timeout_s
        self._head: HeadWatch | None = None
        self._cluster: Cluster | None = None  # None too where the process was in a cluster before
        self._group: PlacementGroup | None = None
        self._actors: list[ray.actor.ActorHandle] = []
        self._writer: ray.actor.ActorHandle | None = None  # where a rank does not see the run directory
        self._places: dict[int, Place] = {}
        self._pending: dict[ray.ObjectRef, int] = {}

    def start(self, specs: list[RankSpec], entry: str) -> None:
        self.stop()
        if not ray.is_initialized():
            self._cluster = Cluster(ray, self._address)
        if self._head is None:
            self._head = HeadWatch(ray.get_runtime_context().gcs_address)
        if not self._head.answers():
            raise LaunchError(f"ray launcher: {self._no_head()}; start it again")
        try:
            with token_in(specs[0].run_dir) as token:
                self._place(sorted(spec.rank for spec in specs), token)
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
                ended += self._lose_all_without_head()
                break
            ended += [self._take(ref) for ref in ready]
        return sorted(ended, key=lambda outcome: outcome.rank)

    def stop(self) -> None:
        self._pending.clear()
        if self._head is not None and not self._head.answers():
            end_workers(self._pids_here())
        elif ray.is_initialized():
            for actor in filter(None, [*self._actors, self._writer]):
                with contextlib.suppress(RayError):  # it may be dead already
                    ray.kill(actor, no_restart=True)
            if self._group is not None:
                remove_placement_group(self._group)
            self._await_exit()
        self._actors, self._places, self._group, self._writer = [], {}, None, None

    def close(self) -> None:
        self.stop()
        if self._cluster is not None:
            self._cluster.leave(has_head=self._head is None or self._head.answers())
            self._cluster = self._head = None

    def pids(self) -> dict[int, int]:
        return {rank: place.pid for rank, place in self._places.items()}

    def _place(self, numbers: list[int], token: str) -> None:
        """Creates the actors, all or none, and learns where they are and who of them sees the run directory.

        Rank numbers are given in their order.
        """
        ranks = len(numbers)
        nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        each = placement.bundle(ranks, self._device, nodes)
        strategy = placement.strategy(self._wanted, ranks, each, nodes)
        self._group = placement_group([each] * ranks, strategy=strategy)
        if not self._group.wait(self._placement_timeout_s):
            free = ray.available_resources()
            raise LaunchError(
                placement.describe_shortage(ranks, each, strategy, nodes, free, self._placement_timeout_s)
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
        refs = [actor.place.remote(token) for actor in self._actors]
        places = [msgspec.json.decode(self._fetch(ref, "start its actor"), type=Place) for ref in refs]
        order = placement.rank_order(places)
        self._actors = [self._actors[index] for index in order]
        self._places = {rank: places[index] for rank, index in zip(numbers, order, strict=True)}
        if not all(place.sees_run_dir for place in places):
            self._start_writer(token)

    def _start_writer(self, token: str) -> None:
        self._writer = start_writer()
        if not self._fetch(self._writer.sees.remote(token), "start the actor that writes its files"):
            blind = sorted({place.node_ip for place in self._places.values() if not place.sees_run_dir})
            raise LaunchError(
                f"ray launcher: {os.path.dirname(token)} is seen neither from {', '.join(blind)} nor by Ray's "
                "workers on this node; name a directory with --out DIR that they see"
            )

    def _run(self, specs: list[RankSpec], entry: str) -> None:
        """Opens the rendezvous of one arm and sets its ranks to work. `specs` are by index."""
        by_rank = dict(zip(self._places, self._actors, strict=True))
        actors, places = ([by[spec.rank] for spec in specs] for by in (by_rank, self._places))
        host = places[0].node_ip if _several_nodes(places) else LOOPBACK
        port = self._fetch(actors[0].open_store.remote(host, self._exchange_timeout_s), "open the store")
        for spec, actor, place in zip(specs, actors, places, strict=True):
            orders = Orders(
                spec=spec,
                entry=entry,
                gpu_id=place.gpu_id,
                host=host,
                port=port,
                timeout_s=self._exchange_timeout_s,
            )
            writer = None if place.sees_run_dir else self._writer
            self._pending[actor.run.remote(msgspec.json.encode(orders), actors, writer)] = spec.rank

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
            # A node that is gone leaves its actors "unavailable"; nobody waits for it to come back.
            died = "died" if isinstance(error, ActorDiedError) else "is out of reach"
            where = f" on {self._places[rank].node_ip}" if _several_nodes(self._places.values()) else ""
            return RankOutcome(rank=rank, lost=f"its actor{where} {died}: {_one_line(error)}")

    def _lose_all_without_head(self) -> list[RankOutcome]:
        if self._head is None or not self._head.is_gone():
            return []
        lost = [RankOutcome(rank=rank, lost=self._no_head()) for rank in self._pending.values()]
        self._pending.clear()
        return lost

    def _no_head(self) -> str:
        return f"the head of its cluster at {self._head.address} does not answer any more"

    def _pids_here(self) -> list[int]:
        here = ray.util.get_node_ip_address() if self._places else ""
        return [place.pid for place in self._places.values() if place.node_ip == here]

    def _await_exit(self) -> None:
        """Waits until killed actors are gone, as far as they run on this node."""
        pids = self._pids_here()
        deadline_s = time.monotonic() + EXIT_WAIT_S
        while time.monotonic() < deadline_s and any(os.path.exists(f"/proc/{pid}") for pid in pids):
            time.sleep(0.02)


def _several_nodes(places: Collection[Place]) -> bool:
    return len({place.node_id for place in places}) > 1


def _one_line(error: Exception) -> str:
    """The error's first statement; Ray goes on with a paragraph of common causes.

    Of an actor out of reach it is the broken connection's: what stands around it names the actor, so that the ranks
    of a dead node would have a reason each.
    """
    text = " ".join(str(error).split()).partition(" Some common causes")[0]
    return text.rpartition("RpcError: ")[2].partition(" rpc_code:")[0][:400]
