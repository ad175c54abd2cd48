"""How small and how large each number of a configuration may be, alone.

A bound is there to refuse a slip of the finger in one line instead of a run that never ends or a machine
without memory; none of them is near what a server is set to. `broken_limits(config)` yields `PATH: what; the
cure` for each number outside its range, in the order of the table.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from stress.config_schema import Config

SEED_MAX = 2**63 - 1
TOKENS_MAX = 2**31
COUNT_MAX = 10**7

# path -> (least, most), both allowed
LIMITS: dict[str, tuple[float, float]] = {
    "seed": (0, SEED_MAX),
    "layout.tp_size": (1, 4096),
    "layout.dp_size": (1, 4096),
    "layout.exchange_ms": (0, 10**12),
    "pool.page_size": (1, 65536),
    "pool.full_pages": (1, 2**31),
    "pool.swa_pages": (0, 2**31),  # 0: with a ring there is no paged SWA pool
    "pool.window_tokens": (1, TOKENS_MAX),
    "workload.requests": (1, COUNT_MAX),
    "workload.concurrency": (1, COUNT_MAX),
    "workload.namespaces": (1, COUNT_MAX),
    "workload.ballast": (0, 0.95),
    "workload.duration_s": (0.000001, 10**9),
    "workload.idle_cap_s": (0, 10**9),
    "workload.speed": (0.001, 10**6),
    "workload.cancel_rate": (0, 1),
    "workload.fork_rate": (0, 1),
    "serving.chunk_tokens": (1, TOKENS_MAX),
    "serving.prompt_chunk_tokens": (0, TOKENS_MAX),
    "serving.max_running": (1, 10**5),
    "serving.draft_tokens": (0, 1024),
    "serving.accept_mean": (1, 1024),
    "serving.step_base_ms": (0.001, 10**9),
    "serving.prefill_tokens_per_s": (1, 10**12),
    "linker.delay_ms": (0, 10**9),
    "linker.host_pages": (0, 2**31),
    "linker.workers": (1, 64),
    "injections.late_loads": (0, 1),
    "injections.late_stores": (0, 1),
    "injections.twice_loads": (0, 1),
    "injections.twice_stores": (0, 1),
    "injections.lost_loads": (0, 1),
    "injections.lost_stores": (0, 1),
    "injections.failed_loads": (0, 1),
    "injections.steps_late": (1, 10**6),
    "check.level": (0, 3),
    "check.bytes_per_token": (0, 2**24),
    "check.closely": (1, 2**20),
    "deadlines.exchange_s": (0.1, 10**6),
    "deadlines.placement_s": (0.1, 10**6),
    "deadlines.loss_s": (0.1, 10**6),
    "deadlines.stall_s": (0.1, 10**6),
}


def broken_limits(config: Config) -> Iterator[str]:
    """One line for each number that is out of its range."""
    for path, (least, most) in LIMITS.items():
        table, _, key = path.rpartition(".")
        value = getattr(getattr(config, table) if table else config, key)
        if math.isnan(value):
            yield f"{path}: {value} is no number; give {_number(least)} to {_number(most)}"
        elif value < least:
            yield f"{path}: {value} is too small; give {_number(least)} or more"
        elif value > most:
            yield f"{path}: {value} is too large; give {_number(most)} or less"


def _number(value: float) -> str:
    return f"{value:f}".rstrip("0") if isinstance(value, float) else str(value)
