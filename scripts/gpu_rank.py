"""A rank of gpu_check.py's groups: gathers step plans through the ranks' own exchange, and leaves.

    python scripts/gpu_rank.py BACKEND OVER STORE DEVICES GATHERS RANK

A process of its own, for NCCL may crash or hang. Exit 0: all that it heard was what was said, OVER that backend. Else
the last line of stderr says what was not.
"""

from __future__ import annotations

import sys

import torch.distributed as dist

from stress.launch.contract import LOOPBACK
from stress.launch.exchange import GroupExchange
from stress.step_plan import Mode, StepPlan

TIMEOUT_S = 150.0


def gather(backend: str, over: str, store: str, devices: list[str], gathers: int, rank: int) -> None:
    """One rank on each of `devices`, which meet at the file `store`. Raises SystemExit with what is not as said."""
    ranks = len(devices)
    met = dist.FileStore(store, ranks)
    how = {"device": devices[rank], "backend": backend, "host": LOOPBACK, "timeout_s": TIMEOUT_S}
    group = GroupExchange(rank, ranks, met, lost=lambda peers: False, **how)
    if group.plans_over != over:
        sys.exit(f"the plans travel over {group.plans_over}, not over {over}")
    for step in range(gathers):
        plans = [StepPlan(Mode.EXTEND, step, peer, -1 - step).to_bytes() for peer in range(ranks)]
        heard = group.exchange(plans[rank] + bytes([rank]))
        if heard != [plan + bytes([peer]) for peer, plan in enumerate(plans)]:
            sys.exit(f"step {step}: {heard}")
    met.set(f"done/{rank}", "")
    met.wait([f"done/{peer}" for peer in range(ranks)])  # who leaves takes from the others what is on its way
    group.leave()
    if dist.is_initialized():
        sys.exit("NCCL did not let go of the group")


if __name__ == "__main__":
    backend, over, store, devices, gathers, rank = sys.argv[1:]
    gather(backend, over, store, devices.split(","), int(gathers), int(rank))
