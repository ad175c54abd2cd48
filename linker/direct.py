"""A linker joined straight to the pools: transfers take virtual time, and each ends exactly once.

A transfer queued at `now_us` is due `delay_us` later, plus its size over the bandwidth if one is given;
transfers do not share the bandwidth. It ends when `poll` reports it or `cancel` returns True; until then its
caller keeps its pages pinned, afterwards the linker touches none of them. A page is stored from the poll that
reports its offload. Page keys are prefix-chained by the workload's contract (a key names the whole prefix up
to its page's end), so they are used as they are: a second hash chain would only rename them. Under unified KV
the linker skips SWA (sgl-project/sglang#38519): it moves FULL pages only. Costs: lookup, load O(keys) in
numpy; offload that plus O(new pages) in Python; the rest O(log transfers) each.
"""

from __future__ import annotations

import heapq
from typing import NamedTuple

import numpy as np

from linker.contract import Completion, TransferKind
from linker.key_table import require_keys
from linker.store import MemoryStore


class _Transfer(NamedTuple):
    kind: TransferKind
    owner: int
    keys: np.ndarray  # int64[n], what moves
    pages: np.ndarray  # int64[n], FULL page ids
    swa: np.ndarray | None  # bool[n], offloads of a linker that does not skip SWA
    due_us: int


class DirectLinker:
    """Implements `linker.contract.Linker` over a store.

    delay_us: latency of a transfer. pages_per_ms: bandwidth of one transfer, None for no limit.
    Raises ValueError if delay_us is negative or pages_per_ms is not positive.
    """

    def __init__(
        self, store: MemoryStore, *, skips_swa: bool, delay_us: int, pages_per_ms: int | None = None
    ) -> None:
        if delay_us < 0:
            raise ValueError(f"linker: delay_us {delay_us} is negative; give 0 or more")
        if pages_per_ms is not None and pages_per_ms < 1:
            raise ValueError(f"linker: pages_per_ms {pages_per_ms} is below 1; leave it out for no limit")
        self.skips_swa = skips_swa
        self._store = store
        self.delay_us = delay_us
        self._pages_per_ms = pages_per_ms
        self._transfers: dict[int, _Transfer] = {}
        self._due: list[tuple[int, int]] = []  # heap of (due_us, ticket), with the cancelled
        self._on_their_way: set[int] = set()  # keys of offloads that have not ended
        self._loads = 0
        self._next_ticket = 1

    # What is restorable

    def lookup(self, keys: np.ndarray) -> int:
        """How many leading keys of int64[n] are stored: 0..n."""
        return self._store.contains_prefix(keys)

    def stored(self, keys: np.ndarray) -> np.ndarray:
        """bool[n], one a key of int64[n]."""
        return self._store.contains(keys)

    def swa_stored(self, keys: np.ndarray) -> np.ndarray:
        """bool[n]: a load of the page could restore its SWA part too; all False if this linker skips SWA."""
        if self.skips_swa:
            return np.zeros(len(keys), dtype=bool)
        return self._store.swa_stored(keys)

    # Transfers

    def load(self, owner: int, keys: np.ndarray, pages: np.ndarray, now_us: int) -> tuple[int, int]:
        """Queue a load of int64[n] keys into FULL pages int64[n]; returns (ticket, due_us).

        Raises ValueError if n is 0, the lengths differ, or a key is not stored.
        """
        _require_pairs("load", keys, pages)
        if not len(keys):
            raise ValueError(f"load for owner {owner}: no keys; load only what lookup() found")
        stored = self._store.contains_prefix(keys)
        if stored < len(keys):
            raise ValueError(
                f"load for owner {owner}: page key {int(keys[stored])} (number {stored} of {len(keys)}) "
                "is not stored; load only what lookup() found"
            )
        ticket = self._queue("load", owner, keys, pages.copy(), None, now_us)
        self._loads += 1
        return ticket, self._transfers[ticket].due_us

    def offload(
        self, owner: int, keys: np.ndarray, pages: np.ndarray, now_us: int, swa: np.ndarray | None = None
    ) -> int | None:
        """Queue a store of FULL pages int64[n] under int64[n] keys; returns a ticket, None if none is sent.

        Sent are the keys that are neither stored nor on their way (`pages_of` tells which pages). `swa`, only
        for a linker that does not skip SWA, says which pages go with their SWA part (bool[n]); a page stored
        without it is sent again to get it. Raises ValueError if lengths differ, a key to be sent is not
        positive, or swa is given and skipped.
        """
        _require_pairs("offload", keys, pages)
        if swa is not None:
            if self.skips_swa:
                raise ValueError(f"offload for owner {owner}: this linker skips SWA; leave swa out")
            if len(swa) != len(keys) or swa.dtype != np.bool_:
                raise ValueError(f"offload for owner {owner}: give swa as bool[{len(keys)}], one a key")
        missing = ~self._store.contains(keys)
        if swa is not None:
            missing |= swa & ~self._store.swa_stored(keys)
        sent = self._claim(owner, keys, missing.nonzero()[0])
        if not sent:
            return None
        part = None if swa is None else swa[sent]
        return self._queue("offload", owner, keys[sent], pages[sent], part, now_us)

    def cancel(self, ticket: int) -> bool:
        """End a transfer that poll has not reported; True if it never will be. An offload stores nothing."""
        transfer = self._transfers.get(ticket)
        if transfer is None:
            return False
        self._end(ticket, transfer)
        return True

    def poll(self, now_us: int) -> list[Completion]:
        """Transfers that ended by now_us, in order of (due_us, ticket); their stores become visible here."""
        completions = []
        while self._due and self._due[0][0] <= now_us:
            due_us, ticket = heapq.heappop(self._due)
            transfer = self._transfers.get(ticket)
            if transfer is None:
                continue  # cancelled
            self._end(ticket, transfer)
            if transfer.kind == "offload":
                self._store.add(transfer.keys, transfer.swa)
            completions.append(
                Completion(ticket, transfer.kind, transfer.owner, len(transfer.keys), True, due_us)
            )
        return completions

    def next_due_us(self) -> int | None:
        """When the next transfer is due; None: nothing is in flight."""
        while self._due and self._due[0][1] not in self._transfers:
            heapq.heappop(self._due)
        return self._due[0][0] if self._due else None

    def in_flight(self) -> tuple[int, int]:
        """(loads, offloads) that have not ended."""
        return self._loads, len(self._transfers) - self._loads

    def pages_of(self, ticket: int) -> np.ndarray:
        """FULL pages under a transfer: int64[n]; empty once it has ended."""
        transfer = self._transfers.get(ticket)
        return np.empty(0, dtype=np.int64) if transfer is None else transfer.pages

    # Other replicas

    def exchange(self) -> bytes:
        """Keys stored since the last exchange, in the format of `linker.store`; empty if there are none."""
        return self._store.exchange()

    def learn(self, news: bytes) -> None:
        """Another replica's additions take effect. Raises ValueError if news is malformed."""
        self._store.learn(news)

    def _claim(self, owner: int, keys: np.ndarray, missing: np.ndarray) -> list[int]:
        """Positions among `missing` whose keys are not on their way; from now on they are, each key once."""
        wanted = keys[missing]
        if len(wanted) and int(wanted.min()) < 1:
            raise ValueError(
                f"offload for owner {owner}: page key {int(wanted.min())} is not positive; give page keys > 0"
            )
        sent = []
        for position, key in zip(missing.tolist(), wanted.tolist(), strict=True):
            if key not in self._on_their_way:
                self._on_their_way.add(key)
                sent.append(position)
        return sent

    def _queue(
        self,
        kind: TransferKind,
        owner: int,
        keys: np.ndarray,
        pages: np.ndarray,
        swa: np.ndarray | None,
        now_us: int,
    ) -> int:
        due_us = now_us + self.delay_us
        if self._pages_per_ms is not None:
            due_us += -(-len(keys) * 1000 // self._pages_per_ms)  # rounded up: a page always takes time
        ticket = self._next_ticket
        self._next_ticket += 1
        self._transfers[ticket] = _Transfer(kind, owner, keys, pages, swa, due_us)
        heapq.heappush(self._due, (due_us, ticket))
        return ticket

    def _end(self, ticket: int, transfer: _Transfer) -> None:
        del self._transfers[ticket]
        if transfer.kind == "load":
            self._loads -= 1
        else:
            self._on_their_way.difference_update(transfer.keys.tolist())


def _require_pairs(verb: str, keys: np.ndarray, pages: np.ndarray) -> None:
    require_keys(keys)
    if len(pages) != len(keys):
        raise ValueError(f"{verb}: {len(keys)} keys for {len(pages)} pages; give one page a key")
