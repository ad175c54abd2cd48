"""The configurations of the matrix, the reference's five bases and a real engine's own, each idle and loaded.

Idle: as the base is written, and few requests at a time. Loaded: pools ten times as large, nine tenths of them on loan
to others from the first operation to the last, so that what is left is what the idle pool had.
"""

from __future__ import annotations

import msgspec

from stress.config import Config, load_config
from stress.config_checks import check_config
from stress.matrix.subject import REFERENCE, Subject

BASES = ("paged", "linker-swa", "ring", "small-window", "tp")
POOL_STATES = ("idle", "loaded")
ARM = REFERENCE.project
BALLAST = 0.9
TIMES = 10


def base_config(
    name: str, pool_state: str, fault: str | None, needs: tuple[str, ...] = (), subject: Subject = REFERENCE
) -> Config:
    """The base `name` in a pool state; its one arm, of the subject, has the fault (`dry:F06`: the clean twin).
    `needs`: overrides."""
    config = load_config(name, list(needs))
    replace = msgspec.structs.replace
    if pool_state == "loaded":
        pool = config.pool
        config = replace(
            config,
            pool=replace(pool, full_pages=pool.full_pages * TIMES, swa_pages=pool.swa_pages * TIMES),
            workload=replace(config.workload, ballast=BALLAST),
        )
    arm = replace(config.arms.named[subject.project], fault=fault, target=subject.target)
    config = replace(config, arms=replace(config.arms, named={subject.project: arm}))
    return check_config(replace(config, record=replace(config.record, operations="all")))
