"""Swarm: which features a run has on, and how small its pools are, drawn from its seed.

A run with everything on hides what only shows when something is off. So each seed draws its own subset of forks,
cancels, speculation, chunking, the linker, its store and transfers that fail, unified KV, the ring, namespaces; page
size and window; and pool sizes from the smallest on which every request can still run. What was drawn is a set of
overrides, printed as such; the same seed draws the same. Requests and their number, the layout, the arms and the checks
stay as configured, and what a user sets is not drawn. No mark is required: what a run comes to depends on the draw.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import msgspec
import numpy as np

from stress.config import Config
from stress.config_checks import check_config
from stress.config_pools import full_pages_needed, swa_pages_behind_prefix
from stress.config_schema import LinkerFault
from stress.target.name import project_of
from stress.words import below, split, words
from stress.workload.plan import plan_of

# Page sizes are divisors or multiples of a trace's blocks of 64 tokens.
PAGE_SIZES = (16, 32, 64, 128, 256)
WINDOWS_TOKENS = (32, 64, 128, 256, 512)
CHUNKS_TOKENS = (256, 512, 1024, 2048, 4096)
# Of transfers, after some that went well. Not all of them, for then nothing is ever restored.
TRANSFER_FAULTS = (
    (),
    (),
    (),
    (LinkerFault(kind="failed-load", after=3, count=20),),
    (LinkerFault(kind="short-load", after=3, count=20),),
    (LinkerFault(kind="failed-offload", after=10, count=100),),
    (LinkerFault(kind="late", after=3, count=50, delay_ms=2000.0),),
    (LinkerFault(kind="failed", after=20, count=100), LinkerFault(kind="late-load", after=3, delay_ms=300.0)),
)
# Of an engine whose layers have a table a group, in one pool: sizes in pages of pool.page_size, spans in its windows.
GROUPS = (
    (),
    (),
    ("full",),
    ("full", "sliding", "sliding"),
    ("full", "sliding", "chunked:{1}:{8}"),
    ("full", "sliding:{2}"),
    ("full:{2}", "sliding:{1}"),
)
HOST_POOLS = (0, 1, 1, 3)  # pages of the host, in pools; 0: what the engine takes
# Spare pages beyond the smallest that can run, in percent of those; 0 comes as often as any other.
SPARE_PERCENT = (0, 2, 10, 30, 100, 400)


def swarm_config(config: Config, overrides: Iterable[str] = ()) -> tuple[Config, list[str]]:
    """The configuration that `config.seed` draws, and what was drawn as overrides `a.b=v`.

    `overrides`: those that `config` was made with; what they set stays. Raises ConfigError or WorkloadError where the
    base itself can't be planned, or what was drawn does not go with what was set.
    """
    given = {override.partition("=")[0].strip() for override in overrides}
    draw = _Draw(config.seed)
    pool = _kept(config, "pool", _pool(config, draw), given)
    serving = msgspec.structs.replace(
        config.serving,
        chunk_tokens=max(pool.page_size, draw.one("chunk", CHUNKS_TOKENS)),
        max_running=draw.one("running", (2, 4, 16, 64)),
        draft_tokens=draw.one("drafts", (0, 0, 2, 4, 8)),
    )
    workload = msgspec.structs.replace(
        config.workload,
        concurrency=draw.one("concurrency", (4, 16, 40, 80)),
        cancel_rate=draw.one("cancels", (0.0, 0.0, 0.05, 0.3)),
        fork_rate=draw.one("forks", (0.0, 0.0, 0.05, 0.3)),
        namespaces=draw.one("namespaces", (1, 1, 2, 3)),
    )
    linker = msgspec.structs.replace(
        config.linker,
        enabled=draw.one("linker", (True, True, True, False)),
        store=draw.one("store", ("shared", "memory")),
        warm=draw.one("warm", (True, False)),
        delay_ms=draw.one("delay", (0.0, 5.0, 500.0)),
        faults=list(draw.one("transfer faults", TRANSFER_FAULTS)),
    )
    replace = msgspec.structs.replace
    tables = {
        "serving": serving,
        "workload": workload,
        "linker": linker,
        "check": replace(config.check, require=[]),
    }
    tables = {name: _kept(config, name, table, given) for name, table in tables.items()}
    drawn = replace(config, pool=pool, **tables)
    drawn = replace(drawn, pool=_kept(config, "pool", _sized(drawn, draw), given))
    if draws_groups(config):
        drawn = replace(drawn, **_grouped(config, drawn, draw, given))
    return check_config(drawn), _overrides(config, drawn)


def draws_groups(config: Config) -> bool:
    """Whether an arm's engine has one pool for groups of layers."""
    return any(project_of(arm.target) == "vllm" for arm in config.arms.named.values())


def _grouped(config: Config, drawn: Config, draw: _Draw, given: set[str]) -> dict:
    """The tables with groups, pages of the host, and as many more pages as the groups behind the first two need."""
    size, pool = drawn.pool.page_size, drawn.pool
    sizes = {str(pages): pages * size for pages in (1, 2, 8)}
    groups = [re.sub(r"\{(\d)\}", lambda of: str(sizes[of[1]]), text) for text in draw.one("groups", GROUPS)]
    more = max(0, len(groups) - 2) * (pool.swa_pages + 8) + 2 * len(groups)
    pool = msgspec.structs.replace(pool, groups=groups, full_pages=pool.full_pages + more)
    host_pages = draw.one("host", HOST_POOLS) * (pool.full_pages + pool.swa_pages)
    linker = msgspec.structs.replace(drawn.linker, host_pages=host_pages)
    tables = {"pool": pool, "linker": linker}
    return {name: _kept(config, name, table, given) for name, table in tables.items()}


def _kept(config: Config, name: str, drawn, given: set[str]):
    """The table `drawn` with what is in `given`, keys or whole tables, as `config` has it."""
    table = getattr(config, name)
    keys = [key for key in table.__struct_fields__ if given & {name, f"{name}.{key}"}]
    return msgspec.structs.replace(drawn, **{key: getattr(table, key) for key in keys})


class _Draw:
    """Choices by name: each depends on the seed and its own name alone."""

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def one(self, name: str, choices: tuple):
        """One of `choices`, each with the same chance."""
        return choices[int(below(words(split(self._seed, f"swarm/{name}"), np.arange(1)), len(choices))[0])]


def _pool(config: Config, draw: _Draw):
    """Page size, window and how the window is kept; pool sizes come when all else is known."""
    ring = draw.one("ring", (False, False, False, True))
    window_tokens = draw.one("window", WINDOWS_TOKENS)
    if draw.one("odd window", (False, False, False, True)) and not ring:
        window_tokens -= window_tokens // 5  # no multiple of a page
    return msgspec.structs.replace(
        config.pool,
        page_size=draw.one("page size", PAGE_SIZES),
        window_tokens=window_tokens,
        unified_kv=draw.one("unified kv", (True, True, False)),
        swa_ring=ring,
    )


def _sized(config: Config, draw: _Draw):
    """The pool with so many pages as the drawn spare leaves: at the least what each request alone needs."""
    plan = plan_of(config)
    longest = max(
        full_pages_needed(config.pool, config.serving, prompt, output)
        for prompt, output in zip(plan.prompt_tokens.tolist(), plan.output_tokens.tolist(), strict=True)
    )
    full_pages = _with_spare(longest, draw.one("full spare", SPARE_PERCENT))
    swa_pages = _with_spare(
        swa_pages_behind_prefix(config.pool, config.serving), draw.one("swa spare", SPARE_PERCENT)
    )
    # A prompt's slots come in pairs, so a FULL pool that is smaller than the SWA pool would waste the rest of it.
    return msgspec.structs.replace(config.pool, full_pages=max(full_pages, swa_pages), swa_pages=swa_pages)


def _with_spare(pages: int, percent: int) -> int:
    return pages + -(-pages * percent // 100)


def _overrides(base: Config, drawn: Config) -> list[str]:
    """What differs, as --set takes it, in the order of the tables."""
    before, after = base.to_dict(), drawn.to_dict()
    found = []
    for table in ("pool", "workload", "serving", "linker", "check"):
        for key, value in after[table].items():
            if before[table].get(key) != value:
                found.append(f"{table}.{key}={_toml(value)}")
    return found


def _toml(value) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {_toml(part)}" for key, part in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    if isinstance(value, str):
        return f'"{value}"'
    return str(value).lower() if isinstance(value, bool) else str(value)
