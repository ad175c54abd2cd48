"""The exchange of the ranks' payloads over a torch.distributed group (gloo, on host memory).

One exchange is a gather to rank 0 and a broadcast of all frames: on 8 ranks and 2 cores that takes a fifth of
the time of gloo's ring all_gather, whose seven steps each wait for another process to be scheduled. A frame
is a length and the payload; every rank sees all lengths, so all agree when a second round must carry longer
payloads, and on the size of the next frame. The head of a payload, the rank's step plan, travels with the rest, or
where each rank has a device of its own by a collective of its own behind it (see plan_group). Over gloo that would
take three to six times as long as the exchange itself.

When a peer dies, gloo raises in the survivors. They leave the group, which makes their own peers raise too,
and go on alone: from then on a rank hears only itself, and `partial` is true. While the group is formed gloo
would wait for a dead peer as long as for a late one, so a rank asks its launcher meanwhile who is lost.
"""

from __future__ import annotations

import functools
import os
import socket
import sys
from collections.abc import Callable
from concurrent.futures import Future
from datetime import timedelta

import torch
import torch.distributed as dist

from stress.launch.contract import LOOPBACK, LaunchError
from stress.launch.device import use_device
from stress.launch.plan_group import PlanGroup, form_plan_group
from stress.launch.rendezvous import JOIN_TIMEOUT_S, Lost, await_peers, begin, join_timeout, reach_store
from stress.step_plan import PLAN_BYTES

LENGTH_BYTES = 4
FRAME_BYTES_MIN = 1 << 10
FRAME_BYTES_MAX = 1 << 20  # larger payloads take a second round each time


def open_store(host: str, timeout_s: float) -> tuple[dist.TCPStore, int]:
    """The rendezvous store, held by rank 0, and the port that the system chose for it.

    It listens on `host` alone: the listening socket is ours, since a store that opens its own listens on
    every interface.
    """
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.bind((host, 0))
    listener.listen(128)
    port = listener.getsockname()[1]
    store = dist.TCPStore(
        host,
        port,
        is_master=True,
        wait_for_workers=False,
        timeout=join_timeout(timeout_s),
        master_listen_fd=listener.detach(),
    )
    return store, port


class AloneExchange:
    """What a rank uses that has no group: it hears only itself, and its digest is partial."""

    def __init__(self, rank: int, ranks: int) -> None:
        self.rank = rank
        self.ranks = ranks
        self.partial = True
        self.plans_over = ""

    def exchange(self, payload: bytes) -> list[bytes]:
        """The payloads of all ranks, in rank order: b"" for each other one."""
        return [payload if peer == self.rank else b"" for peer in range(self.ranks)]

    def leave(self) -> None:
        """There is nothing to leave."""


class GroupExchange:
    """All ranks of one arm, exchanging in step."""

    def __init__(
        self,
        rank: int,
        ranks: int,
        store: dist.Store,
        *,
        host: str,
        timeout_s: float,
        lost: Lost,
        device: str = "cpu",
        backend: str = "auto",
    ) -> None:
        """Joins the group; returns when all ranks have. `device` and `backend` are for the step plans.

        Raises RuntimeError when one is lost or does not come in time, LaunchError where `backend` is nccl and
        the devices are not made for it.
        """
        self.rank = rank
        self.ranks = ranks
        self.partial = False
        self._plans: PlanGroup | None = None
        self._frame_bytes = FRAME_BYTES_MIN
        if host == LOOPBACK:
            os.environ["GLOO_SOCKET_IFNAME"] = "lo0" if sys.platform == "darwin" else "lo"
        others = [peer for peer in range(ranks) if peer != rank]
        store.set(f"here/{rank}", "")
        here = [f"here/{peer}" for peer in range(ranks)]
        await_peers(lambda: store.check(here), others, lost, min(timeout_s, JOIN_TIMEOUT_S))
        lost_one = functools.partial(lost, others)
        formed = begin(lambda: self._form(store, timeout_s, device, backend, lost_one))
        try:
            await_peers(formed.done, others, lost, timeout_s)
        except RuntimeError:
            # It may be formed all the same, a moment later, and others must not wait for this rank in it.
            formed.add_done_callback(_leave_late)
            raise
        formed.result()

    def _form(
        self, store: dist.Store, timeout_s: float, device: str, backend: str, lost: Callable[[], bool]
    ) -> None:
        """Forms the group, and exchanges once: whoever comes out of that knows that all had come into it.

        Without it a rank that has joined could wait in its first exchange for one that gave up joining, whose
        connections stay open until it has given up too. Raises RuntimeError, and has left the group then.
        """
        use_device(device)  # it is each thread's own
        limit = timedelta(seconds=timeout_s)
        dist.init_process_group("gloo", store=store, rank=self.rank, world_size=self.ranks, timeout=limit)
        try:
            self._plans = form_plan_group(device, backend, self._rounds, timeout_s=timeout_s, lost=lost)
        except RuntimeError:
            dist.destroy_process_group()
            raise

    def exchange(self, payload: bytes) -> list[bytes]:
        """The payloads of all ranks at this exchange, in rank order; b"" for a rank that is lost.

        Blocks until every rank has come here, at most the group's timeout; a rank that does not come is lost.
        """
        if not self.partial:
            try:
                return self._rounds(payload) if self._plans is None else self._in_two(payload, self._plans)
            except RuntimeError:  # a peer died (DistNetworkError and its kin are RuntimeErrors) or is late
                self.leave()
        return AloneExchange(self.rank, self.ranks).exchange(payload)

    def leave(self) -> None:
        """Leaves the group for good; peers that wait for this rank are told by the closed connections."""
        if not self.partial:
            self.partial = True
            if self._plans is None or self._plans.leave():
                dist.destroy_process_group()

    @property
    def plans_over(self) -> str:
        """The backend that the step plans travel by."""
        return "gloo" if self._plans is None else "nccl"

    def _in_two(self, payload: bytes, plans: PlanGroup) -> list[bytes]:
        """What follows the plan goes first, over gloo, which notices a dead peer at once; NCCL would not."""
        rests = self._rounds(payload[PLAN_BYTES:])
        heads = plans.gather(payload[:PLAN_BYTES])
        return [head + rest for head, rest in zip(heads, rests, strict=True)]

    def _rounds(self, payload: bytes) -> list[bytes]:
        room = self._frame_bytes - LENGTH_BYTES
        frames = self._gather(len(payload).to_bytes(LENGTH_BYTES, "little") + payload[:room])
        lengths = [int.from_bytes(frame[:LENGTH_BYTES], "little") for frame in frames]
        longest = max(lengths)
        parts = [
            frame[LENGTH_BYTES : LENGTH_BYTES + length] for frame, length in zip(frames, lengths, strict=True)
        ]
        if longest > room:
            rest = self._gather(payload[room:], longest - room)
            parts = [
                part + more[: max(0, length - room)]
                for part, more, length in zip(parts, rest, lengths, strict=True)
            ]
        wanted = 1 << (longest + LENGTH_BYTES - 1).bit_length()
        self._frame_bytes = min(max(wanted, FRAME_BYTES_MIN), FRAME_BYTES_MAX)
        return parts

    def _gather(self, frame: bytes, frame_bytes: int = 0) -> list[bytes]:
        """Every rank's frame, padded to `frame_bytes` (default: the agreed size), in rank order."""
        frame_bytes = frame_bytes or self._frame_bytes
        mine = torch.frombuffer(bytearray(frame.ljust(frame_bytes, b"\0")), dtype=torch.uint8)
        together = torch.empty(self.ranks * frame_bytes, dtype=torch.uint8)
        if self.rank == 0:
            dist.gather(mine, list(together.split(frame_bytes)), dst=0)
        else:
            dist.gather(mine, None, dst=0)
        dist.broadcast(together, 0)
        whole = together.numpy().tobytes()
        return [whole[at : at + frame_bytes] for at in range(0, len(whole), frame_bytes)]


def _leave_late(formed: Future) -> None:
    """Leaves a group that was formed after this rank had given it up."""
    if formed.exception() is None:
        dist.destroy_process_group()


def join_group(
    rank: int,
    ranks: int,
    store: dist.Store | int,
    *,
    host: str,
    timeout_s: float,
    lost: Lost,
    device: str = "cpu",
    backend: str = "auto",
) -> GroupExchange | AloneExchange:
    """The group that meets at `store`, or none when a peer was lost before it was formed.

    `store` is the store itself in rank 0, its port on `host` in the others. `timeout_s` is how long a rank
    waits for its peers at one exchange. Raises LaunchError where `backend` can't be had on the ranks' devices.
    """
    try:
        if isinstance(store, int):
            others = [peer for peer in range(ranks) if peer != rank]
            store = reach_store(host, store, others, lost, min(timeout_s, JOIN_TIMEOUT_S))
        how = {"host": host, "timeout_s": timeout_s, "device": device, "backend": backend}
        return GroupExchange(rank, ranks, store, lost=lost, **how)
    except LaunchError:
        raise
    except RuntimeError:  # DistNetworkError and DistStoreError are RuntimeErrors
        return AloneExchange(rank, ranks)
