"""Which required marks a run is not asked for, and which it never reached.

A mark that a configuration rules out (a load without a linker) or that an engine can't show is exempt, with its
reason: the run is not held to it, and says so. Every other required mark must be reached by a rank.
"""

from __future__ import annotations

from stress.arm_layout import arm_layout
from stress.config_schema import Config
from stress.result import RankResult

_LINKER = ("linker_loaded_without_swa", "load_back", "free_group_with_unmapped", "offloaded")
_PAGED_SWA = ("swa_released_out_of_window", "swa_evicted", "tombstone_recovered", "free_group_with_unmapped")


def exempt_marks(config: Config, ranks: list[RankResult]) -> dict[str, str]:
    """Required marks that this run is not asked for, and why, in the order required."""
    why: dict[str, str] = {}
    if not config.linker.enabled:
        why |= dict.fromkeys(_LINKER, "linker.enabled = false")
    elif not (config.pool.unified_kv or config.pool.swa_ring):
        why["linker_loaded_without_swa"] = "pool.unified_kv = false: loads restore SWA"
    if config.pool.swa_ring:
        why |= dict.fromkeys(_PAGED_SWA, "pool.swa_ring = true: no paged SWA pool")
    if config.workload.cancel_rate == 0:
        why["cancelled"] = "workload.cancel_rate = 0"
    if config.serving.draft_tokens == 0:
        why["spec_tail_returned"] = "serving.draft_tokens = 0"
    if ranks and arm_layout(config, ranks[0].arm).dp_size == 1:
        # The ranks of an attention TP group serve the same requests: all of them are idle, or none is.
        why["idle_rank"] = "the arm has one attention TP group: no rank has a peer with other requests"
    for result in ranks:
        why |= dict.fromkeys(result.marks_exempt, "the arm's engine can't show it, or screens it off")
    return {mark: why[mark] for mark in config.check.require if mark in why}


def missing_marks(config: Config, ranks: list[RankResult]) -> list[str]:
    """Required marks that no rank reached, less those that are exempt."""
    exempt = exempt_marks(config, ranks)
    required = [mark for mark in config.check.require if mark not in exempt]
    return [mark for mark in required if not any(result.marks.get(mark) for result in ranks)]
