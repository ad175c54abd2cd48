"""The gather of the step plans on the ranks' own devices: over nccl, which is RCCL on ROCm.

A server gathers them by one collective of a fixed shape, all_gather of an int64 vector; so does this group of the same
ranks, where each has a device of its own. It comes second in an exchange: gloo, first, has noticed who died before.
Whoever dies between the two would leave NCCL waiting for ever, so the host never waits in NCCL: it asks an event, until
a peer is known to be lost or to a deadline, and aborts the communicator then. NCCL's watchdog is off: it would end the
process, and with it what the rank has found.
"""

from __future__ import annotations

import contextlib
import functools
import os
import socket
import threading
import time
from collections.abc import Callable
from datetime import timedelta

import torch
import torch.distributed as dist

from stress.launch.contract import LaunchError
from stress.step_plan import PLAN_BYTES

GATHER_TIMEOUT_S = 60.0  # all come out of one exchange over gloo: none is later than by its scheduling
ASK_AFTER_S = 0.5  # before the launcher is asked who is lost
LEAVE_TIMEOUT_S = 10.0
LOOK_S = 0.0002
REASON_CHARACTERS = 300
INT64S = PLAN_BYTES // 8
ENVIRONMENT = {
    "TORCH_NCCL_ASYNC_ERROR_HANDLING": "0",  # the watchdog ends no process
    "TORCH_NCCL_ENABLE_MONITORING": "0",  # nor does the thread that watches the watchdog
    "TORCH_NCCL_BLOCKING_WAIT": "0",  # wait() orders streams and does not hold the host
}

Gather = Callable[[bytes], list[bytes]]
"""One exchange over gloo: this rank's bytes in, those of all ranks out, in rank order."""


def device_name(device: str) -> str:
    """A name that two ranks share where they share the device; "" where NCCL can't be used: a CPU, no build of it."""
    if torch.device(device).type != "cuda" or not dist.is_nccl_available():
        return ""
    properties = torch.cuda.get_device_properties(device)
    # An index counts in what its process may see; the uuid and the bus do not.
    seen = os.environ.get("HIP_VISIBLE_DEVICES", os.environ.get("CUDA_VISIBLE_DEVICES", ""))
    uuid = getattr(properties, "uuid", None) or f"{seen}#{torch.device(device).index or 0}"
    bus = [getattr(properties, f"pci_{part}_id", "") for part in ("domain", "bus", "device")]
    return "/".join(map(str, [socket.gethostname(), uuid, *bus]))


def why_not_nccl(names: list[str]) -> str:
    """Why ranks on devices of these names can't gather over nccl; "" where they can."""
    without = [str(rank) for rank, name in enumerate(names) if not name]
    if without:
        who = f"rank {without[0]} has" if len(without) == 1 else f"ranks {', '.join(without)} have"
        return f"{who} no CUDA or ROCm device, or a torch without NCCL"
    first: dict[str, int] = {}
    for rank, name in enumerate(names):
        if name in first:
            return f"ranks {first[name]} and {rank} share a device, which NCCL refuses"
        first[name] = rank
    return ""


def form_plan_group(
    device: str, backend: str, gather: Gather, *, timeout_s: float, lost: Callable[[], bool]
) -> PlanGroup | None:
    """The group on the devices, or None: the plans go with the rest, over gloo. All ranks get the same answer.

    `gather` is used once or twice, by all alike. With `backend` "auto" ranks that can't meet over nccl stay with
    gloo; with "nccl" that raises LaunchError. Raises RuntimeError when a peer is lost meanwhile.
    """
    names = [name.decode() for name in gather(device_name(device).encode())]
    if backend == "gloo":
        return None
    why = why_not_nccl(names)
    if not why:
        # Who could not is heard of before anyone's time for the whole group is over.
        group, trouble = _try(len(names), device, timeout_s / 2, lost)
        told = [reason.decode(errors="replace") for reason in gather(trouble.encode())]
        why = next((f"rank {rank}: {reason}" for rank, reason in enumerate(told) if reason), "")
        if not why:
            return group
        if group is not None:
            group.leave()
    if backend == "nccl":
        raise LaunchError(f"layout.backend is nccl, but {why}; use --set layout.backend=auto, or gloo")
    return None


def _try(ranks: int, device: str, timeout_s: float, lost: Callable[[], bool]) -> tuple[PlanGroup | None, str]:
    """A group that has gathered once, or why there is none.

    The first gather sets the communicator up, and in that NCCL holds this thread, which nobody has to wait for.
    """
    group = None
    try:
        group = PlanGroup(ranks, device, timeout_s=timeout_s, lost=lost)
        group.gather(bytes(PLAN_BYTES))
    except (RuntimeError, ValueError) as error:  # a backend that is not built is a ValueError
        if group is not None:
            group.leave()
        return None, (" ".join(str(error).split()) or type(error).__name__)[:REASON_CHARACTERS]
    return group, ""


class PlanGroup:
    """All ranks of the default group, each on its own device. `lost()`: whether one of the peers is."""

    def __init__(self, ranks: int, device: str, *, timeout_s: float, lost: Callable[[], bool]) -> None:
        """Raises RuntimeError where NCCL can't be set up."""
        os.environ.update(ENVIRONMENT)
        if interface := os.environ.get("GLOO_SOCKET_IFNAME"):
            os.environ.setdefault("NCCL_SOCKET_IFNAME", f"={interface}")
        self._timeout_s = min(timeout_s, GATHER_TIMEOUT_S)
        self._lost = lost
        self._ended = False
        # Not filled: a fill is on the engine's stream, and could come behind what the stream below has put there.
        empty = functools.partial(torch.empty, dtype=torch.int64)
        pinned = torch.cuda.is_available()
        self._said = empty(INT64S, pin_memory=pinned)
        self._heard = empty(ranks * INT64S, pin_memory=pinned)
        self._mine = empty(INT64S, device=device)
        self._all = empty(ranks * INT64S, device=device)
        # The engine's own stream must not stand behind a collective that may never end.
        self._stream = torch.cuda.Stream(device)
        self._landed = torch.cuda.Event()
        self._group = dist.new_group(backend="nccl", timeout=timedelta(seconds=self._timeout_s))

    def gather(self, plan: bytes) -> list[bytes]:
        """All ranks' plans, PLAN_BYTES each, in rank order.

        Raises RuntimeError once a peer is lost, or the time is over: this rank must leave the group then.
        """
        self._said.copy_(torch.frombuffer(bytearray(plan), dtype=torch.int64))
        self._begin()
        begun_s = time.monotonic()
        while not self._landed.query():
            waited_s = time.monotonic() - begun_s
            if waited_s > self._timeout_s:
                raise RuntimeError(f"no step plans of all ranks within {self._timeout_s:g} s")
            if waited_s > ASK_AFTER_S and self._lost():
                raise RuntimeError("a peer was lost while the step plans were gathered")
            time.sleep(LOOK_S)
        heard = self._heard.numpy().tobytes()
        return [heard[at : at + PLAN_BYTES] for at in range(0, len(heard), PLAN_BYTES)]

    def leave(self) -> bool:
        """Aborts the communicator. False where NCCL has not let go of it in time; this rank goes on all the same."""
        ending = threading.Thread(target=self._end, daemon=True)
        ending.start()
        ending.join(LEAVE_TIMEOUT_S)
        return self._ended

    def _begin(self) -> None:
        """Sets the gather going on a stream of its own; the event follows it."""
        # all_gather_into_tensor until torch 2.12
        all_gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
        with torch.cuda.stream(self._stream):
            self._mine.copy_(self._said, non_blocking=True)
            all_gather(self._all, self._mine, group=self._group, async_op=True).wait()
            self._heard.copy_(self._all, non_blocking=True)
            self._landed.record()

    def _end(self) -> None:
        with contextlib.suppress(RuntimeError, ValueError):  # what NCCL can't end ends with the process
            getattr(self._group, "abort", self._group.shutdown)()
            dist.destroy_process_group(self._group)
            self._ended = True
