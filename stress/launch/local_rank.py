"""A rank's process under the local launcher: what runs on the far side of its pipe.

Rank 0 opens the rendezvous store and tells its port, the coordinator tells it to all; each rank then sends
one outcome. The rank's end of the pipe is read by a thread of its own: when the coordinator closes its end,
or is killed, the read ends and the process with it, whatever the rank is doing. So a rank that has ended
stays, and keeps its group open for slower peers, until it is released. SIGINT is left to the coordinator.
"""

from __future__ import annotations

import os
import queue
import signal
import threading
import traceback
from multiprocessing.connection import Connection

import msgspec
import torch

from stress.launch.contract import LOOPBACK, RankOutcome
from stress.launch.device import torch_device
from stress.launch.entry import RankRun
from stress.launch.exchange import AloneExchange, GroupExchange, join_group, open_store
from stress.launch.local_pipe import Ended, StorePort, decode, encode
from stress.result import RankSpec

Inbox = queue.SimpleQueue  # of the bytes that the coordinator sent


def rank_process(pipe: Connection, spec_json: bytes, entry: str, timeout_s: float) -> None:
    """Runs one rank to its outcome and stays until the coordinator lets go of the pipe."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    torch.set_num_threads(1)
    inbox: Inbox = queue.SimpleQueue()
    lifeline = threading.Thread(target=_listen, args=(pipe, inbox), daemon=True)
    lifeline.start()
    spec = msgspec.json.decode(spec_json, type=RankSpec)
    outcome, group = _run(spec, entry, pipe, inbox, timeout_s)
    pipe.send_bytes(encode(Ended(outcome)))
    if outcome.result is None:
        os._exit(1)  # closes its connections, which is how the peers learn of it
    lifeline.join()
    del group  # held until here for the peers that still exchange


def _listen(pipe: Connection, inbox: Inbox) -> None:
    while True:
        try:
            inbox.put(pipe.recv_bytes())
        except (EOFError, OSError):
            os._exit(0)


def _run(
    spec: RankSpec, entry: str, pipe: Connection, inbox: Inbox, timeout_s: float
) -> tuple[RankOutcome, GroupExchange | AloneExchange | None]:
    try:
        spec = msgspec.structs.replace(spec, device=torch_device(spec.device, spec.rank))
        run = RankRun(spec, entry)
        run.open()
        if run.outcome is not None:
            return run.outcome, None
        group = _join(spec, pipe, inbox, timeout_s)
        return run.follow(group), group
    except Exception:
        return RankOutcome(rank=spec.rank, lost=traceback.format_exc().strip()), None


def _join(spec: RankSpec, pipe: Connection, inbox: Inbox, timeout_s: float) -> GroupExchange | AloneExchange:
    """Meets the other ranks: rank 0 tells the coordinator where, the others are told."""
    if spec.rank == 0:
        store, port = open_store(LOOPBACK, timeout_s)
        pipe.send_bytes(encode(StorePort(port)))
        return join_group(spec.rank, spec.ranks, store, host=LOOPBACK, timeout_s=timeout_s)
    try:
        port = decode(inbox.get(timeout=timeout_s)).port
    except queue.Empty:
        port = 0
    if port == 0:
        return AloneExchange(spec.rank, spec.ranks)
    return join_group(spec.rank, spec.ranks, port, host=LOOPBACK, timeout_s=timeout_s)
