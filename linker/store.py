"""Which pages a linker's store holds: an index of page keys, no content.

`MemoryStore` belongs to this rank alone. `SharedStore` is this rank's replica of a store that all ranks
share: its own additions are visible to it at once, those of others from the exchange that brought them, so
what a rank sees depends on exchanges and never on which rank ran first. A store only grows: a tier far larger
than the pools.

News is int64 little endian, 8 bytes a page. Page keys are positive, so the sign is free to say that the
page's SWA part is stored too: a negative word is such a key, negated. A key may come again later, with SWA.
"""

from __future__ import annotations

import numpy as np

from linker.key_table import KeyTable

_WIRE = np.dtype("<i8")


class MemoryStore:
    """A store of this rank alone; other ranks never see it."""

    def __init__(self) -> None:
        self._pages = KeyTable()
        self._swa = KeyTable()

    def __len__(self) -> int:
        """Pages stored."""
        return len(self._pages)

    def contains(self, keys: np.ndarray) -> np.ndarray:
        """bool[n], one a key of int64[n]."""
        return self._pages.contains(keys)

    def contains_prefix(self, keys: np.ndarray) -> int:
        """How many leading keys of int64[n] are stored: 0..n."""
        return self._pages.leading(keys)

    def swa_stored(self, keys: np.ndarray) -> np.ndarray:
        """bool[n]: the page is stored with its SWA part."""
        if not len(self._swa):
            return np.zeros(len(keys), dtype=bool)
        return self._swa.contains(keys)

    def warm(self, keys: np.ndarray, *, swa: bool = False) -> None:
        """Store int64[n] before the run, with or without SWA; every rank does so itself, so it is no news."""
        self._pages.add(keys)
        if swa:
            self._swa.add(keys)

    def add(self, keys: np.ndarray, swa: np.ndarray | None = None) -> None:
        """Store int64[n]; `swa` bool[n] says which with their SWA part (None: none)."""
        self._pages.add(keys)
        if swa is not None:
            self._swa.add(keys[swa])

    def exchange(self) -> bytes:
        """Nothing: the store is not shared."""
        return b""

    def learn(self, news: bytes) -> None:
        """ValueError unless news is empty."""
        if news:
            raise ValueError(
                f"{len(news)} bytes of news for a store of this rank alone; "
                "set linker.store to 'shared' on every rank"
            )


class SharedStore(MemoryStore):
    """This rank's replica of a store that all ranks share."""

    def __init__(self) -> None:
        super().__init__()
        self._news: list[np.ndarray] = []

    def add(self, keys: np.ndarray, swa: np.ndarray | None = None) -> None:
        """As MemoryStore.add; what was not known yet goes out with the next exchange."""
        fresh = self._pages.add(keys)
        if swa is None:
            self._news.append(fresh)
            return
        fresh_swa = self._swa.add(keys[swa])
        self._news.append(np.setdiff1d(fresh, fresh_swa, assume_unique=True))
        self._news.append(-fresh_swa)

    def exchange(self) -> bytes:
        """This rank's additions since the last exchange, in order of completion; empty if there are none."""
        news, self._news = self._news, []
        return b"".join(words.astype(_WIRE, copy=False).tobytes() for words in news)

    def learn(self, news: bytes) -> None:
        """Take over another rank's additions, all or none. Raises ValueError if news is malformed."""
        if len(news) % _WIRE.itemsize:
            raise ValueError(
                f"stored-page news is {len(news)} bytes, no multiple of {_WIRE.itemsize}; "
                "it was cut: pass on what exchange() returned, whole"
            )
        words = np.frombuffer(news, dtype=_WIRE).astype(np.int64)
        keys = np.abs(words)
        bad = (keys < 1).nonzero()[0]  # 0, and the one word whose negative does not exist
        if len(bad):
            at = int(bad[0])
            raise ValueError(
                f"stored-page news holds {int(words[at])} at byte {at * _WIRE.itemsize}, no page key; "
                "pass on what exchange() returned, unchanged"
            )
        self._pages.add(keys)
        with_swa = keys[words < 0]
        if len(with_swa):
            self._swa.add(with_swa)
