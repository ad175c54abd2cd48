"""The direct linker behind upstream's linker interface, in virtual time.

Keys here are upstream's page hashes, folded to the 63 bits that the store keeps. A load is queued when upstream
asks for it and starts with the batch; an offload is acknowledged in the order in which it was queued, when its
transfer has ended, also if the store had every page already. Methods of all releases are there: what a release
does not ask for is never called. Where a load is in the tree before it begins (up to 0.5.21), it is not cancelled when
its request leaves, as upstream's own linkers refuse to (sgl-project/sglang#38195): it begins at the next poll.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any

import numpy as np

from linker.direct import DirectLinker

ENDED_AT_ONCE = 0  # tickets count from 1


def store_keys(page_hashes: Iterable[str]) -> np.ndarray:
    """Hex digests of pages -> int64[n], each > 0: the store's keys."""
    return np.array([(int(text[:16], 16) >> 1) | 1 for text in page_hashes], dtype=np.int64)


def external_linker(
    base: type, direct: DirectLinker, pools: dict, page_size: int, window_pages: int, *, cancels: bool
) -> Any:
    """An instance of a subclass of the tree's UnifiedCacheLinker. `pools`: PoolName -> anything, what is stored.

    `cancels`: whether a load that has not begun may be cancelled, which is where nobody else can find its pages yet.
    """
    linker = type("VirtualTimeLinker", (_VirtualTimeLinker, base), {})
    return linker(direct, pools, page_size, window_pages, cancels)


class _VirtualTimeLinker:
    def __init__(
        self, direct: DirectLinker, pools: dict, page_size: int, window_pages: int, cancels: bool
    ) -> None:
        self.direct = direct
        self.pools = pools
        self.now: Callable[[], int] = lambda: 0
        self.layer_done_counter = SimpleNamespace(
            set_consumer=lambda index: None, wait_until=lambda layer: None
        )
        self.forward_stream = None
        # Transfers whose end upstream has taken in, however they ended; offloads_failed are among them.
        self.loads_done = 0
        self.offloads_done = self.offloads_failed = 0
        self._page_size = page_size
        self._window_pages = window_pages
        self._cancels = cancels
        self._queued: list[tuple[str, np.ndarray, np.ndarray]] = []
        self._batches: dict[int, dict[int, str]] = {}  # batch -> ticket of each load -> request
        self._next_batch = 0
        self._offloads: deque[int] = deque()  # tickets in upstream's order
        self._ended: set[int] = {ENDED_AT_ONCE}
        self._loading: dict[int, tuple[int, int]] = {}  # ticket of a load -> its pages, when it ends
        self._failed: set[int] = set()  # tickets that ended without having moved all they should
        self.mistrusted: set[str] = set()  # requests that are not restored again: a load of theirs failed
        self._left: set[str] = set()  # requests that have left a load that goes on

    # match

    def lookup(self, rid: str, transfers: list) -> list[int]:
        by_name = {transfer.name.value: transfer for transfer in transfers}
        keys = store_keys(by_name["kv"].keys)
        # One load a request: one that comes back before the load that it left has ended finds that in the tree.
        pages = 0 if rid in self.mistrusted or rid in self._left else self.direct.lookup(keys)
        if "swa" not in by_name:
            return list(range(1, pages + 1))
        stored = self.direct.swa_stored(keys[:pages])
        return [n for n in range(1, pages + 1) if stored[max(0, n - self._window_pages) : n].all()]

    # loads

    def load(self, rid: str, transfers: list) -> bool:
        # Where FULL is on the device already and only its SWA side went, there is no "kv" among the transfers.
        first = min(transfers, key=lambda transfer: transfer.name.value != "kv")
        pages = first.device_indices[:: self._page_size].cpu().numpy() // self._page_size
        self._queued.append((rid, store_keys(first.keys), pages.astype(np.int64)))
        return True

    def start_layer_wise_loading(self) -> int:
        batch, self._next_batch = self._next_batch, self._next_batch + 1
        queued, self._queued = self._queued, []
        tickets = {}
        for rid, keys, pages in queued:
            ticket, due_us = self.direct.load(int(rid), keys, pages, self.now())
            tickets[ticket], self._loading[ticket] = rid, (len(keys), due_us)
        if tickets:
            self._batches[batch] = tickets
        return batch

    def finish_layer_wise_loading(self, counter_index: int) -> bool:
        self.collect()
        whole = self._ended - self._failed
        landed = [ticket in whole for ticket in self._batches.pop(counter_index, {})]
        self.loads_done += len(landed)
        return all(landed)

    def cancel_queued_load(self, rid: str) -> bool:
        if not self._cancels:
            self._left.update(load[0] for load in self._queued if load[0] == rid)
            return False
        before = len(self._queued)
        self._queued = [load for load in self._queued if load[0] != rid]
        return len(self._queued) < before

    def num_completed_loads(self) -> int:
        self.collect()
        return sum(self._ended.issuperset(tickets) for tickets in self._batches.values())

    def pop_completed_load(self) -> list[str]:
        batch = min(batch for batch, tickets in self._batches.items() if self._ended.issuperset(tickets))
        rids = list(self._batches.pop(batch).values())
        self.loads_done += len(rids)
        self._left.difference_update(rids)
        return rids

    # offloads

    def offload(self, transfers: list, session_id: str | None = None) -> bool:
        by_name = {transfer.name.value: transfer for transfer in transfers}
        kv = by_name["kv"]
        keys = store_keys(kv.keys)
        pages = kv.device_indices[:: self._page_size].cpu().numpy().astype(np.int64) // self._page_size
        swa = None
        if not self.direct.skips_swa:
            swa = (
                np.isin(keys, store_keys(by_name["swa"].keys))
                if "swa" in by_name
                else np.zeros(len(keys), bool)
            )
        ticket = self.direct.offload(0, keys, pages, self.now(), swa=swa)
        self._offloads.append(ENDED_AT_ONCE if ticket is None else ticket)
        return True

    def num_completed_offloads(self) -> int:
        self.collect()
        done = 0
        for ticket in self._offloads:
            if ticket not in self._ended:
                break
            done += 1
        return done

    def pop_completed_offload(self) -> bool:
        ticket = self._offloads.popleft()
        self._ended.discard(ticket or -1)
        failed = ticket in self._failed
        self.offloads_done += 1
        self.offloads_failed += failed
        return not failed

    # the engine's side

    def all_loads_ended(self) -> bool:
        return not self._loading and not self._queued

    def loads_due_us(self) -> int:
        """When the last load that is under way ends; 0: none is."""
        return max((due_us for _, due_us in self._loading.values()), default=0)

    def collect(self) -> None:
        """Takes in what has ended by now."""
        for completion in self.direct.poll(self.now()):
            self._ended.add(completion.ticket)
            asked, _ = self._loading.pop(completion.ticket, (0, 0))
            if completion.pages < asked or not completion.ok:
                self._failed.add(completion.ticket)

    def left_behind(self) -> bool:
        """Whether a load is queued whose request has left, so that no batch of its own will begin it."""
        return any(load[0] in self._left for load in self._queued)

    def next_due_us(self) -> int | None:
        """When a poll has something to do; None: nothing is under way."""
        due_us = self.direct.next_due_us()
        waiting = self.num_completed_offloads() or self.num_completed_loads() or self.left_behind()
        return self.now() if waiting else due_us

    def in_flight(self) -> tuple[int, int]:
        return len(self._queued) + sum(map(len, self._batches.values())), len(self._offloads)

    def reset(self) -> None:
        self._queued.clear()

    def close(self) -> None:
        """Nothing is held outside this process."""
