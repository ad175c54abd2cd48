"""Ranks of a real run whose step plans take the way of a device group, on a machine that has no device.

The group, its place in an exchange, its deadlines and its end are the real ones. Stood in for are the device's name,
NCCL by a gloo group of its own, and the event, which like NCCL's never comes when a peer is dead or stopped.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

import torch
import torch.distributed as dist

from stress.launch import plan_group
from stress.launch.plan_group import PlanGroup
from stress.rank import run_rank
from stress.result import Emit, RankSpec

VICTIM = 1
AT_GATHER = 4  # the first one is that of the group's forming


class Landed:
    """The event: the work that it follows, once there is one."""

    work: dist.Work | None = None

    def query(self) -> bool:
        return self.work.is_completed() and self.work.is_success()


def apart(spec: RankSpec, emit: Emit):
    """Each rank on a device of its own."""
    _stand_in(f"device {spec.rank}")
    return run_rank(spec, emit)


def shared(spec: RankSpec, emit: Emit):
    """All ranks on one device."""
    _stand_in("the only device")
    return run_rank(spec, emit)


def unable(spec: RankSpec, emit: Emit):
    """Devices of their own, and an NCCL that can't be set up on rank 1."""
    _stand_in(f"device {spec.rank}")
    if spec.rank == VICTIM:

        def broken(group: PlanGroup) -> None:
            raise RuntimeError("NCCL error: no network\ninterface")

        PlanGroup._begin = broken
        plan_group.GATHER_TIMEOUT_S = 60.0
    else:
        plan_group.GATHER_TIMEOUT_S = 1.0
    return run_rank(spec, emit)


def killed(spec: RankSpec, emit: Emit):
    """Rank 1 dies between the exchange over gloo and the gather of the plans."""
    _stand_in(f"device {spec.rank}")
    return _struck(spec, emit, signal.SIGKILL)


def stopped(spec: RankSpec, emit: Emit):
    """Rank 1 stands still there."""
    _stand_in(f"device {spec.rank}")
    plan_group.GATHER_TIMEOUT_S = 2.0
    return _struck(spec, emit, signal.SIGSTOP)


def _struck(spec: RankSpec, emit: Emit, how: signal.Signals):
    begin, gathers = PlanGroup._begin, 0

    def counted(group: PlanGroup) -> None:
        nonlocal gathers
        gathers += 1
        if spec.rank == VICTIM and gathers == AT_GATHER:
            os.kill(os.getpid(), how)
        begin(group)

    PlanGroup._begin = counted
    return run_rank(spec, emit)


def _stand_in(name: str) -> None:
    plan_group.device_name = lambda device: name
    torch.cuda.Stream = lambda device: None
    torch.cuda.Event = Landed
    new_group: Callable[..., dist.ProcessGroup] = dist.new_group
    dist.new_group = lambda backend, timeout: new_group(backend={"nccl": "gloo"}[backend], timeout=timeout)

    def begin(group: PlanGroup) -> None:
        group._landed.work = dist.all_gather_into_tensor(
            group._heard, group._said, group=group._group, async_op=True
        )

    PlanGroup._begin = begin
