"""What the probe sees below an operation: pages lent, returned, mapped, asked back, held.

An event carries page ids, never token slots: the probe reduces slots to pages as it sees them. `pages` and `peers`
are int64 numpy arrays of equal length (or `peers` is None), owned by the event: nobody writes to them later. On the
way from the probe to the rules few pages travel as lists (`with_arrays`). On a
GPU they arrive one non-blocking copy later, still under the operation that caused them. An event says what the
target *did*; what it *meant* to do is an INTENT, recorded when a deferred free is enqueued, because a free that is
resolved at the flush may name a page that is validly on loan by then; or a BIND, which MAP then has to confirm.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

import msgspec
import numpy as np


class EventKind(str, Enum):
    """`edge` events speak of a mapping edge (source pool -> target pool), the others of one pool."""

    # pool, pages: left the free list; token = 1: with what is in them, as pages that a prefix cache found there
    LEND = "lend"
    RETURN = "return"  # pool, pages: are on the free list again, in the order in which they went
    # pool, pages: asked back. Through an edge: pages = source pages, peers = pages read there
    INTENT = "intent"
    # pool, pages: each gains a reference, or gives one up; with the last one the page is asked back.
    # Of pools whose pages are shared by count
    REF = "ref"
    UNREF = "unref"
    # pool, rid, pages, table: found in the prefix cache for a request, in order, null where none is needed
    HIT = "hit"
    BIND = "bind"  # edge, pages = source pages, peers = what they shall map to from now on (no_peer: nothing)
    MAP = "map"  # edge, pages = source pages, peers = what the mapping says now (no_peer included)
    SLOTS = "slots"  # edge, pages = source slots, peers = target slots: a sample for offset checks
    GROUP_BEGIN = "group_begin"  # pool, or ALL_POOLS: frees are deferred from here
    GROUP_END = "group_end"  # pool, or ALL_POOLS: everything deferred has been flushed
    # pool, rid, pages: the pages in the request's table now, in order; empty: it holds none. token = how many of the
    # first ones are all that it named when it was last told; -1: it may have changed in any way. table: which of the
    # request's tables, where it has several
    HOLD = "hold"
    FREE_LIST = "free_list"  # pool, pages: the whole free list, read by a sweep
    CACHED = "cached"  # pool, pages: every page in the prefix cache, read by a sweep
    # pool, pages = [size, available] or [.., evictable, protected], as the target counts pages
    COUNTS = "counts"
    LEFTOVER = "leftover"  # pool: after a drain: pages = [locks, pins, loads, offloads, requests] still there
    # pool, rid: slots for prompt positions were refused: pages = [pages needed, then free, evictable of each pool]
    REFUSED = "refused"
    # pool: at an exchange: pages = [requests that wait, us that the oldest has, requests that run, transfers on their
    # way, us since the next of them was due]
    CLOCK = "clock"
    ENDED = "ended"  # pool, rid: after a request's end: pages = [locks, loads, rows] that are left of it, if any are
    # pool, rid, pages, token = place of the first one in the request's table: a running request's forward pass reads
    # these source pages in its window. A pool that an edge leads to: each of them must have a peer there.
    # method = "whole": the last of the pages too is read to its end
    READ = "read"
    # pool, rid, pages, peers = which page of the request each is to hold, counted from its start: what a forward pass
    # wrote into memory that the request's row owns, and what its last position then reads there
    ROW_WRITTEN = "row_written"
    ROW_READ = "row_read"
    # pool, rid, pages: every slot of them holds its token now: computed, or a load has landed
    WRITTEN = "written"
    # pool, rid, pages, table: the pass of the step at hand will fill these, or, once more in the same operation,
    # will not, because the request has lost its slots. Of pools where a prefix is published before it is computed
    PROMISED = "promised"
    WITHDRAWN = "withdrawn"
    # pool, rid, pages, table: are found by a key from here on; token = 1: are still, by that of what was in them before
    # they were lent. FORGOTTEN: are not found any more, though nobody has got them since
    PUBLISHED = "published"
    FORGOTTEN = "forgotten"
    # edge, rid, pages: source pages of the request's published prefix, or of the whole cache, that it says have a peer
    LIVE = "live"
    # pool, pages, method = who holds it, token = which lock: pages that one lock took, or gave up, which an unlock does
    # for good. A lock of a component that is reached through an edge stands under its target pool, with source pages
    LOCK = "lock"
    UNLOCK = "unlock"
    # pool, rid, pages, peers = their keys, method = "load" or "offload", token = ticket. Once more through an edge,
    # without peers: source pages of the same transfer whose part in the edge's target pool goes with them
    TRANSFER_BEGIN = "transfer_begin"
    # pool, rid, pages = those that are valid, method = "done", "failed" or "cancelled", token = ticket
    TRANSFER_END = "transfer_end"
    # pool, rid, pages = keys by which the target finds pages, peers = the identities of what is in them: namespace and
    # whole prefix; method says where they are found
    KEYS = "keys"
    # pool, rid, pages = [pages that do not hold what is read there, the first such slot], peers = [label found there,
    # label expected (slot_label.py), 1 where the page was lent anew since: nobody wrote there]; method: forward, hit,
    # publish, load, store or sweep
    CONTENT = "content"
    # what the ranks of a group tell each other, seen by each of them; token = the rank itself, for a lookup the member
    # rid, pages = keys of the request's prefix that the member's store holds, peers = 1: with the window part, else 0;
    # token = -1: nothing is agreed from here on
    RESTORABLE = "restorable"
    # pages = rows of 5 words: rank, first rank and number of ranks of the collective, its name, its size; in order
    COLLECTIVES = "collectives"
    # pages = rows of 7 words: rank, operation, digest up to it, its kind, request, first and second word of the answer
    DECISIONS = "decisions"

    __hash__ = str.__hash__  # an enum's own is a Python call, and a kind is looked up several times an event


ALL_POOLS = ""
STILL_FOUND = 1  # the token of a PUBLISHED that tells of a key of what was there before

# What an engine may let be watched; and `offsets`, which the probe alone decides: samples of slots inside a page; and
# `clock`, which the rank tells.
ALL_OBSERVATIONS = frozenset(
    {
        *("lends", "returns", "mapping", "offsets", "groups", "tables", "cache", "counts", "drain", "owners"),
        *("reads", "writes", "live", "locks", "transfers", "keys", "content", "private_loads"),
        *("row_memory", "clock"),
        # pages are shared by count; they are objects that carry it; an admitted request's table is its prefix, in
        # whole pages
        *("references", "page_objects", "whole_prefix"),
        # which pages are found by a key, from when on
        "publications",
        *("lookups", "collectives", "decisions"),
    }
)


# Structs, not named tuples or dataclasses: several are made an operation, each in a third of the time.
class Cause(msgspec.Struct, frozen=True, gc=False):
    """Who asked: the operation under which an event happened, and the engine's own word for the step in it."""

    operation: int
    kind: str  # the operation's kind
    rid: int  # the request it is about, -1: several or none
    step: str  # "linker load", "cache eviction", "window", "insert", ... or ""

    def of(self, rid: int) -> Cause:
        """The same about one request."""
        return Cause(self.operation, self.kind, rid, self.step)


class Event(msgspec.Struct, eq=False, gc=False):
    kind: EventKind
    pool: str  # a pool's name; for an edge event the target pool of the edge
    pages: np.ndarray
    peers: np.ndarray | None
    cause: Cause
    call: int  # running number of calls within the operation
    method: str  # the target's method, e.g. "free_swa_segment"
    at_us: int
    # Of a lock or a transfer: which one; of a read: where in the table; of a hold: how many pages are as before.
    token: int = -1
    table: str = ""  # which table of the request; "": its only one

    @property
    def owner(self) -> int | tuple[int, str]:
        """By what the shadow keeps a table: the request, and which of its tables where it has several."""
        return (self.cause.rid, self.table) if self.table else self.cause.rid


def request_of(owner: int | tuple[int, str]) -> int:
    """The request of an `Event.owner`."""
    return owner if isinstance(owner, int) else owner[0]


def with_arrays(event: Event) -> Event:
    """The event as rules take it. The probe tells few pages as a list: arrays of one page are dear."""
    pages, peers = event.pages, event.peers
    if type(pages) is list:
        event = msgspec.structs.replace(
            event,
            pages=np.array(pages, dtype=np.int64),
            peers=np.array(peers, dtype=np.int64) if type(peers) is list else peers,
        )
    return event


class PoolShape(NamedTuple):
    """A pool as the checks need it. `null_page` is never lent and never returned (None: there is none)."""

    name: str
    pages: int  # lendable pages
    page_size: int  # tokens
    null_page: int | None
    first_page: int = 1  # lendable ids are first_page .. first_page + pages - 1


class EdgeShape(NamedTuple):
    """A mapping from pages of `source` to pages of `target`; `no_peer` means that there is none.

    `gives_back`: a free through the mapping gives the target's page back. Where pages of `target` are lent in another
    way (a ring's, with its row), it only forgets the entry, and a page may be on loan without one.
    """

    source: str
    target: str
    no_peer: int = 0
    gives_back: bool = True
