"""What the SGLang plugin takes from `linker_extra_config`: a JSON object, refused whole for one wrong key.

store_pages  pages that this rank keeps in host memory; the least recently used goes first
pools        which pools are stored: ["kv"] or ["kv", "swa"]; left out: all that the model keeps in pages
delay_ms     added to every transfer
faults       [{"kind", "ranks", "after", "count", "delay_ms"}, ...], see linker.faults
rank_env     the environment variable that holds the rank; left out: the rank in torch.distributed, else 0
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from typing import Any

import msgspec

from linker.faults import TransferFault, transfer_fault

WHERE = "linker_extra_config"


class _Fault(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    kind: str
    ranks: list[int] | None = None
    after: int = 0
    count: int | None = None
    delay_ms: float = 0.0


class PluginOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Read by `plugin_options`."""

    store_pages: int
    pools: list[str] | None = None
    delay_ms: float = 0.0
    faults: list[_Fault] = []
    rank_env: str | None = None

    @property
    def delay_us(self) -> int:
        return round(self.delay_ms * 1000)

    def transfer_faults(self) -> list[TransferFault]:
        return [_transfer_fault(index, fault) for index, fault in enumerate(self.faults)]


def plugin_options(extra_config: Mapping[str, Any] | None) -> PluginOptions:
    """Raises ValueError, one line that names the key and the cure."""
    try:
        options = msgspec.convert(dict(extra_config or {}), PluginOptions)
    except msgspec.ValidationError as error:
        keys = ", ".join(PluginOptions.__struct_fields__)
        raise ValueError(
            f"{WHERE}: {error}; the keys are {keys}, of a fault {', '.join(_Fault.__struct_fields__)}"
        ) from None
    if options.store_pages < 1:
        raise ValueError(f"{WHERE}.store_pages: {options.store_pages} keeps nothing; give 1 or more")
    if not (math.isfinite(options.delay_ms) and options.delay_ms >= 0):
        raise ValueError(f"{WHERE}.delay_ms: {options.delay_ms:g} is no delay; give milliseconds from 0")
    if options.pools is not None and "kv" not in options.pools:
        raise ValueError(f"{WHERE}.pools: {options.pools} has no 'kv'; every load needs the KV pool")
    options.transfer_faults()
    return options


def rank_of_process(rank_env: str | None, group_rank: int) -> int:
    """The rank that faults go by: `rank_env`'s value, else group_rank. ValueError if it is no rank."""
    if rank_env is None:
        return group_rank
    text = os.environ.get(rank_env, "")
    if not text.isdecimal():
        raise ValueError(
            f"{WHERE}.rank_env: the environment variable {rank_env} is {text!r}, no rank; "
            "set it for every rank's process, or leave rank_env out"
        )
    return int(text)


def _transfer_fault(index: int, fault: _Fault) -> TransferFault:
    where = f"{WHERE}.faults[{index}]"
    try:
        made = transfer_fault(
            fault.kind,
            ranks=fault.ranks,
            after=fault.after,
            count=fault.count,
            delay_ms=fault.delay_ms,
        )
    except ValueError as error:
        raise ValueError(f"{where}.{error}") from None
    if made.kind == "lost" and not made.delay_us:
        raise ValueError(f"{where}.delay_ms: a lost load would stop the server; give the transport's timeout")
    return made
