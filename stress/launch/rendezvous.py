"""How ranks come to their group: they reach its store and wait for each other, no longer than for a peer that is lost.

Gloo and the store would wait for a dead peer as long as for a late one. So whoever waits here asks its launcher
meanwhile who is lost, and what can't be interrupted runs in a thread that nobody has to wait for.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection
from concurrent.futures import Future
from datetime import timedelta

import torch.distributed as dist

JOIN_TIMEOUT_S = 60.0  # for all peers to come to the group once it has a store; they start together
CONNECT_TIMEOUT_S = 2.0  # for one try to reach the store; its holder may have died
LOOK_S = 0.01  # between two looks at who has come

Lost = Callable[[Collection[int]], bool]
"""Whether one of these ranks is lost, as far as the launcher knows."""


def join_timeout(timeout_s: float) -> timedelta:
    return timedelta(seconds=min(timeout_s, JOIN_TIMEOUT_S))


def await_peers(ready: Callable[[], bool], peers: Collection[int], lost: Lost, timeout_s: float) -> None:
    """Returns when `ready` says so. Raises RuntimeError once a peer is lost, or the time is over."""
    deadline_s = time.monotonic() + timeout_s
    while not ready():
        if lost(peers):
            raise RuntimeError("a peer was lost before the group was formed")
        if time.monotonic() > deadline_s:
            raise RuntimeError(f"not all peers came to the group within {timeout_s:g} s")
        time.sleep(LOOK_S)


def begin(work: Callable[[], object]) -> Future:
    """Sets `work` going in a thread that nobody has to wait for: with a dead peer it goes on to its timeout."""
    future: Future = Future()

    def run() -> None:
        try:
            future.set_result(work())
        except Exception as error:
            future.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return future


def reach_store(host: str, port: int, peers: Collection[int], lost: Lost, timeout_s: float) -> dist.TCPStore:
    """The store that rank 0 holds. Raises RuntimeError once a peer is lost, or the time is over.

    Whichever peer it is: rank 0 may have gone on alone for it already, and its store with it.
    """
    deadline_s = time.monotonic() + timeout_s
    while True:
        try:
            store = dist.TCPStore(
                host, port, is_master=False, timeout=timedelta(seconds=min(timeout_s, CONNECT_TIMEOUT_S))
            )
        except RuntimeError:
            if lost(peers) or time.monotonic() > deadline_s:
                raise
        else:
            store.set_timeout(join_timeout(timeout_s))
            return store
