"""What an external linker must hold.

A linker keeps KV pages outside the pools and moves them in virtual time. Its keys are page keys: a key names
the whole prefix up to the page's end, in its namespace, so a page is restorable only if every page before it
is. Under unified KV the target model keeps its window per request, so the linker skips the SWA component: a
load fills FULL slots only, and the request's first position that has an SWA peer is the end of what was
loaded.

Each transfer ends exactly once: completed, failed, or cancelled before it started. A page under transfer is
pinned by its caller until then. Nothing here reads a clock: the caller passes `now_us`.
"""

from __future__ import annotations

from typing import Literal, NamedTuple, Protocol

import numpy as np

TransferKind = Literal["load", "offload"]


class Completion(NamedTuple):
    """A transfer that ended. `pages`: how many of its pages are valid (fewer than asked: a short one)."""

    ticket: int
    kind: TransferKind
    owner: int  # the request, or whatever the caller gave
    pages: int
    ok: bool
    due_us: int


class Linker(Protocol):
    """One rank's side of an external store. `skips_swa`: FULL pages alone are moved."""

    skips_swa: bool

    def lookup(self, keys: np.ndarray) -> int:
        """How many leading keys (int64[n], page keys after the local hit) can be restored: 0..n."""

    def load(self, owner: int, keys: np.ndarray, pages: np.ndarray, now_us: int) -> tuple[int, int]:
        """Queue a load of keys into FULL pages (int64[n] each); returns (ticket, due_us)."""

    def swa_stored(self, keys: np.ndarray) -> np.ndarray:
        """bool[n]: a load of the page could restore its SWA part too; all False if the linker skips SWA."""

    def offload(
        self, owner: int, keys: np.ndarray, pages: np.ndarray, now_us: int, swa: np.ndarray | None = None
    ) -> int | None:
        """Queue a store of pages under their keys, where `swa` (bool[n]) with the SWA part; returns a ticket.

        Keys that are stored or on their way are left out; None: nothing is left to send.
        """

    def cancel(self, ticket: int) -> bool:
        """Cancel a transfer that has not completed; True if it will not complete."""

    def poll(self, now_us: int) -> list[Completion]:
        """Transfers that ended by now, in order of (due_us, ticket); stores become visible here."""

    def next_due_us(self) -> int | None:
        """When the next transfer ends; None: nothing is in flight."""

    def in_flight(self) -> tuple[int, int]:
        """(loads, offloads) that have not ended."""

    def pages_of(self, ticket: int) -> np.ndarray:
        """FULL pages under a transfer (int64[n]), for its caller's pins; empty once it has ended."""

    def exchange(self) -> bytes:
        """Keys stored since the last exchange, for the other replicas (empty: a store of this rank alone)."""

    def learn(self, news: bytes) -> None:
        """Another replica's additions take effect."""
