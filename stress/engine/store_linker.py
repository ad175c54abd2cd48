"""The linker of one rank from a resolved configuration: its store, its delay, and the transfers that are to fail."""

from __future__ import annotations

import msgspec

from linker.direct import DirectLinker
from linker.faults import transfer_fault
from linker.faulty_linker import FaultyLinker
from linker.store import MemoryStore, SharedStore

_STORES = {"memory": MemoryStore, "shared": SharedStore}


def build_store(linker) -> MemoryStore:
    """`linker`: the [linker] table. An empty store."""
    return _STORES[linker.store]()


def build_linker(linker, store: MemoryStore, *, skips_swa: bool, rank: int) -> DirectLinker:
    """`linker`: the [linker] table. With transfer faults it is one whose transfers fail as they say on this rank."""
    delay_us = round(linker.delay_ms * 1000)
    if not linker.faults:
        return DirectLinker(store, skips_swa=skips_swa, delay_us=delay_us)
    faults = [transfer_fault(**msgspec.structs.asdict(fault)) for fault in linker.faults]
    return FaultyLinker(store, faults=faults, rank=rank, skips_swa=skips_swa, delay_us=delay_us)
