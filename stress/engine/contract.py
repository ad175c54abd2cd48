"""What the serving loop asks of an engine, and what the probe may ask about it.

The verbs are those of `stress.operation`, one method each; besides them the serving loop only opens and closes
requests and reads `room`, `next_window_eviction` and `pending_us`. An engine keeps the table of each request's pages
and never tells page ids through a verb: the ledger reads them through `table` and the probe. A verb that can't be
satisfied returns None or False and leaves everything as it was. An assertion of the target escapes as AssertionError,
any other exception is an error of the target. An engine takes its clock from `now_us`, which the loop sets before each
operation, and says in `step` which part of the operation it is in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple, Protocol

import numpy as np

from stress.check.event import EdgeShape, PoolShape


class RequestSpec(NamedTuple):
    """What an engine must know of a request before it is admitted.

    keys: int64[ceil((prompt + output) / page_size)], one a page; a key names the whole prefix up to the page's end,
    with its namespace. `tokens(lo, hi)` expands positions to token ids for an engine that wants them. `restorable`:
    the external store may be asked for positions below it only, because a load of the rest has failed; None: for all.
    """

    rid: int
    namespace: int
    prompt_tokens: int
    output_tokens: int
    keys: np.ndarray
    tokens: Callable[[int, int], np.ndarray]
    session: int = -1
    restorable: int | None = None
    texts: np.ndarray | None = None  # as keys, of the text alone: two namespaces share them. None: as keys


class Warm(NamedTuple):
    """What the external store holds when the run starts.

    prefixes(own): arrays of page keys, int64[n] each, from position 0 on; own: those of this rank's sessions alone.
    tokens_of(keys): their tokens, int64[n * page_size].
    """

    prefixes: Callable[[bool], Iterator[np.ndarray]]
    tokens_of: Callable[[np.ndarray], np.ndarray]


class Admission(NamedTuple):
    """An admitted request: `cached` tokens came from the prefix cache, `loaded` from the external linker."""

    cached: int
    loaded: int
    ready_us: int  # when the load completes; the request's first forward pass can't end before it


class Room(NamedTuple):
    """Tokens that an allocation could get, each pool: free now plus evictable."""

    full: int
    swa: int


class RowPass(NamedTuple):
    """What a forward pass did in memory that the request's row owns: pages of that pool, and for each of them which
    page of the request it is to hold, counted from its start. Written first, then read.
    """

    written: list[int]
    written_as: list[int]
    read: list[int]
    read_as: list[int]


class WindowRead(NamedTuple):
    """What a forward pass reads of a request's window. `pool`: whose memory; another than pools[0] means that each of
    the pages must have a peer there. `first`: place of the first page in the request's row. `pages`: ids of pools[0].
    """

    pool: str
    first: int
    pages: np.ndarray


class Engine(Protocol):
    """One rank's KV memory. `pools[0]` holds every position; edges lead from it to the others."""

    now_us: int
    step: str
    page_size: int
    pools: tuple[PoolShape, ...]
    edges: tuple[EdgeShape, ...]
    marks_exempt: frozenset[str]  # marks that it can't show, or never does by design
    # of: lends, returns, mapping, groups, tables, cache, counts, drain, owners,
    # reads, writes, live, locks, transfers, keys, content, row_memory,
    # private_loads: what is loaded is its request's own until it has landed, and given back if it does not
    observes: frozenset[str]

    def open(self, spec: RequestSpec) -> None:
        """Make a request known; it holds nothing yet."""

    def close(self, rid: int) -> None:
        """Forget a request that holds nothing (finished, aborted, or never admitted)."""

    def admit(self, rid: int, spare: int) -> Admission | None:
        """Match, lock, load back. None: fewer than `spare` FULL tokens would be left, or no row; nothing is held."""

    def extend(self, rows: list[tuple[int, int]]) -> bool:
        """Slots for prompt positions up to `upto`, for all rows or none; evicts cached pages if it must."""

    def reserve(self, rows: list[tuple[int, int]]) -> bool:
        """Slots up to page_ceil(committed + tokens), for all rows or none; evicts cached pages if it must."""

    def commit(self, rows: list[tuple[int, int]]) -> None:
        """The forward pass wrote `accepted` more positions of each row."""

    def results_begin(self) -> None: ...

    def results_end(self) -> None: ...

    def checkpoint(self, rid: int) -> None: ...

    def evict_windows(self, rids: list[int]) -> None: ...

    def finish(self, rid: int) -> None: ...

    def abort(self, rid: int) -> None: ...

    def retract(self, rid: int) -> None: ...

    def evict(self, full: int, swa: int) -> None: ...

    def poll(self) -> int:
        """Completions of the linker take effect; returns how many did."""

    def loads_due_us(self) -> int:
        """When the last load of the batch ends that began with its extend, and not when its request was admitted; 0:
        there is none. The forward pass can't end before it."""

    def failed_loads(self) -> list[tuple[int, int]]:
        """(request, tokens) for each running request whose row has pages that a load should have filled and did not,
        since this was last asked: its first `tokens` positions are valid, the rest must not be read."""

    def drain(self) -> None:
        """Evict everything that is cached."""

    def synchronize(self) -> None:
        """Waits for the device, where there is one."""

    # what the loop and the ledger may read

    def room(self) -> Room: ...

    def next_window_eviction(self, rid: int) -> int:
        """Committed tokens at which `evict_windows` of the request would next release something."""

    def pending_us(self) -> int | None:
        """When the linker's next completion is due; None: nothing is in flight."""

    def table(self, rid: int) -> np.ndarray:
        """Pages of pools[0] that the request's row names, in order: int64[]; empty when it holds none."""

    def row_pass(self, rid: int, accepted: int) -> RowPass:
        """The pass that committed the last `accepted` positions of the request. Only where `row_memory` is observed."""

    def row_keeper(self) -> object:
        """What lends rows of that memory: `acquire(...) -> lent` and `release(lent)` with `lent.row`, `pages_of(row)`,
        and a pool's `available_size()` and `get_all_free_pages()`. Only where `row_memory` is observed."""

    def committed(self, rid: int) -> int:
        """Positions of the request that hold a token, or will once its load has landed; 0 when it holds no row.

        Only where `content` is observed.
        """

    def window_read(self, rid: int) -> WindowRead:
        """Pages of positions [max(committed - window, swa_from), committed): what the next forward pass reads of them.

        Only where `reads` is observed. `swa_from` is the first position that must have a place in the window's pool.
        """

    def published_live(self) -> np.ndarray:
        """Pages of pools[0] on the path that was published last which the cache says have a peer: int64[].

        Only where `live` is observed, and right after a checkpoint or a finish.
        """

    def cached_live(self) -> np.ndarray:
        """The same of the whole cache: int64[]. O(cache)."""

    def lock_keeper(self) -> object:
        """The object whose locks and unlocks the probe wraps. Only where `locks` is observed."""

    def published_keys(self, first: int) -> np.ndarray:
        """Keys by which the path that was published last is found, from page `first` on: int64[].

        Only where `keys` is observed, and right after a checkpoint or a finish. `keys` also means that these are the
        plan's page keys as long as nothing is wrong, in the cache and in the linker's store.
        """

    def running(self) -> list[int]:
        """Requests that hold a row, in order of admission."""

    def cached_pages(self) -> np.ndarray:
        """Pages of pools[0] in the prefix cache: int64[]."""

    def counts(self) -> dict[str, tuple[int, int, int, int]]:
        """By pool, in pages: size, available, evictable, protected, as the target itself counts them. The answer is the
        caller's: a new one each time."""

    def leftover(self) -> tuple[int, int, int, int, int]:
        """Locks, pins, loads, offloads, requests still there (all 0 after a drain)."""

    def kept_of(self, rid: int) -> tuple[int, int, int]:
        """Locks, loads on their way and rows under a request's name: all 0 once it has ended. "owners" only."""

    def marks(self) -> dict[str, int]:
        """What the engine alone can see of the marks: node_split, tombstone_recovered, load_back, ..."""

    def exchange(self) -> bytes:
        """What other ranks shall learn at this boundary (stored pages)."""

    def learn(self, news: list[bytes]) -> None:
        """What the other ranks told, in rank order."""

    def allocators(self) -> object:
        """The object whose methods the probe wraps."""

    def linker(self) -> object | None:
        """The `linker.contract.Linker` whose load, offload, cancel and poll the probe wraps; None: there is none."""

    # the attention-TP group

    def join(self, members: int) -> object | None:
        """From now on lookups and transfers are agreed with the other members, in lock step, by the
        `linker.agreed_linker.AgreedLinker` that is returned; None: they are not."""

    def lookup_keys(self, rid: int) -> np.ndarray:
        """Keys by which the store is asked for a request that is open and not admitted: int64[]. After `join` alone."""

    def landed(self, rids: list[int]) -> bool:
        """Whether the loads of these running requests have ended, for all members. Without a group: True."""

    def standing(self) -> tuple[int, ...]:
        """How pools, tree and locks stand, for the digest that the members compare: some integers in O(1)."""
