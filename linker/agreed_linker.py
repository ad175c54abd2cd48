"""One rank's linker in an attention-TP group: it answers what all members have said alike, never what it alone knows.

The members serve the same requests, each with a shard of every page and a store of its own shards, and must decide
alike. What a member's store holds of a request is told before the request is admitted (`told_of`, `hear_lookup`), and
only what every member has told counts. A transfer that was begun ends when every member has told how it ended
(`verdicts`, `agree`): a load is valid as far as it is for all, an offload is stored if it is by all. Tickets are
numbered by what was asked, so they are the same on all members, also where one has nothing to send. Costs: O(pages) a
lookup, O(members) a transfer under way and exchange.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from linker.contract import Completion, TransferKind
from linker.direct import DirectLinker
from linker.store import MemoryStore

NOT_ENDED = -1


class _Open(NamedTuple):
    kind: TransferKind
    owner: int
    pages: int
    inner: int | None  # the own linker's ticket; None: it had nothing to send


class Told:
    """A member's store, as far as the member has told what it holds."""

    def __init__(self) -> None:
        self._store = MemoryStore()

    def add(self, keys: np.ndarray, full: np.ndarray, swa: np.ndarray) -> None:
        """int64[n] keys, bool[n] stored, bool[n] with their SWA part."""
        self._store.add(keys[full], swa[full])

    def lookup(self, keys: np.ndarray) -> int:
        return self._store.contains_prefix(keys)

    def swa_stored(self, keys: np.ndarray) -> np.ndarray:
        return self._store.swa_stored(keys)


class AgreedLinker:
    """Implements `linker.contract.Linker` over a linker of this rank's own. `now()`: virtual time, microseconds."""

    def __init__(self, own: DirectLinker, members: int, now: Callable[[], int]) -> None:
        self.own = own
        self.skips_swa = own.skips_swa
        self.views: list[Told | DirectLinker] = [Told() for _ in range(members)]
        self.alone = False
        self._now = now
        self._open: dict[int, _Open] = {}
        self._outer: dict[int, int] = {}  # the own linker's ticket -> ticket
        self._verdicts: dict[int, int] = {}  # ticket -> how it ended here
        self._untold: set[int] = set()
        self._agreed: list[Completion] = []
        self._next_ticket = 1

    # Lookups

    def told_of(self, keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """What this rank tells of int64[n] keys: bool[n] stored, bool[n] with their SWA part."""
        return self.own.stored(keys), self.own.swa_stored(keys)

    def hear_lookup(self, member: int, keys: np.ndarray, full: np.ndarray, swa: np.ndarray) -> None:
        """What a member has told, of the same keys."""
        self.views[member].add(keys, full, swa)

    def lookup(self, keys: np.ndarray) -> int:
        """How many leading keys of int64[n] every member can restore: 0..n."""
        return min(view.lookup(keys) for view in self.views)

    def swa_stored(self, keys: np.ndarray) -> np.ndarray:
        """bool[n]: every member can restore the page with its SWA part."""
        return np.logical_and.reduce([view.swa_stored(keys) for view in self.views])

    # Transfers

    def load(self, owner: int, keys: np.ndarray, pages: np.ndarray, now_us: int) -> tuple[int, int]:
        inner, due_us = self.own.load(owner, keys, pages, now_us)
        return self._begin("load", owner, len(keys), inner), due_us

    def offload(
        self, owner: int, keys: np.ndarray, pages: np.ndarray, now_us: int, swa: np.ndarray | None = None
    ) -> int:
        """As `Linker.offload`, but always with a ticket: another member may have something to send."""
        inner = self.own.offload(owner, keys, pages, now_us, swa=swa)
        return self._begin("offload", owner, len(keys), inner)

    def cancel(self, ticket: int) -> bool:
        transfer = self._open.pop(ticket, None)
        if transfer is None:
            left = [completion for completion in self._agreed if completion.ticket != ticket]
            was_agreed, self._agreed = len(left) < len(self._agreed), left
            return was_agreed
        self._verdicts.pop(ticket, None)
        self._untold.discard(ticket)
        if self._outer.pop(transfer.inner, None) is not None:
            self.own.cancel(transfer.inner)
        return True

    def poll(self, now_us: int) -> list[Completion]:
        """What the members agreed has ended, in order of ticket."""
        ended, self._agreed = self._agreed, []
        return ended

    def next_due_us(self) -> int | None:
        """Now where something is agreed; else later than now, since nothing ends before the next exchange."""
        if self._agreed:
            return self._agreed[0].due_us
        if not self._open:
            return None
        return max(self._now() + 1, self.own.next_due_us() or 0)

    def in_flight(self) -> tuple[int, int]:
        kinds = [transfer.kind for transfer in (*self._open.values(), *self._agreed)]
        loads = kinds.count("load")
        return loads, len(kinds) - loads

    def pages_of(self, ticket: int) -> np.ndarray:
        transfer = self._open.get(ticket)
        inner = None if transfer is None else transfer.inner
        return np.empty(0, dtype=np.int64) if inner is None else self.own.pages_of(inner)

    # What the members tell each other

    def collect(self, now_us: int) -> None:
        """Takes in what has ended here by now; its stores are this rank's from now on."""
        for completion in self.own.poll(now_us):
            ticket = self._outer.pop(completion.ticket)
            self._ended_here(ticket, self.verdict_of(completion))

    def verdict_of(self, completion: Completion) -> int:
        """How a transfer of this rank ended: a load's valid pages, 1 or 0 for an offload."""
        if completion.kind == "load":
            return completion.pages if completion.ok else 0
        return int(completion.ok)

    def under_way(self) -> int:
        """Transfers of the group that have not ended on all members: the same number on all of them."""
        return len(self._open)

    def has_something_to_tell(self) -> bool:
        """Whether a transfer of this rank is under way, or has ended since it last told."""
        return bool(self._outer or self._untold)

    def verdicts(self) -> list[int]:
        """How each transfer of the group stands here, in order of ticket; NOT_ENDED: under way."""
        self._untold.clear()
        return [self._verdicts.get(ticket, NOT_ENDED) for ticket in self._open]

    def agree(self, told: Sequence[Sequence[int]], now_us: int) -> None:
        """The verdicts of all members: what has ended for all takes effect at the next poll."""
        for ticket, verdicts in list(zip(self._open, zip(*told, strict=False), strict=False)):
            worst = min(verdicts)
            if worst == NOT_ENDED:
                continue
            transfer = self._open.pop(ticket)
            self._verdicts.pop(ticket, None)
            pages = worst if transfer.kind == "load" else transfer.pages * worst
            self._agreed.append(Completion(ticket, transfer.kind, transfer.owner, pages, worst > 0, now_us))

    def go_alone(self) -> None:
        """The group is no more, or its members no longer decide alike: from now on this rank's own word counts."""
        self.alone = True
        self.views = [self.own]

    # Other replicas

    def exchange(self) -> bytes:
        return self.own.exchange()

    def learn(self, news: bytes) -> None:
        self.own.learn(news)

    def _begin(self, kind: TransferKind, owner: int, pages: int, inner: int | None) -> int:
        ticket = self._next_ticket
        self._next_ticket += 1
        self._open[ticket] = _Open(kind, owner, pages, inner)
        if inner is None:
            self._ended_here(ticket, 1)
        else:
            self._outer[inner] = ticket
        return ticket

    def _ended_here(self, ticket: int, verdict: int) -> None:
        self._verdicts[ticket] = verdict
        self._untold.add(ticket)
