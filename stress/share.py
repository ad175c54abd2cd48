"""A DP rank's share of the plan: its requests for the serving loop, and what its external store holds at the start.

The plan is the same on every rank; the ranks of an attention-TP group have the same share.
"""

from __future__ import annotations

from stress.config import Config
from stress.engine.contract import Warm
from stress.serving.request import PlannedRequest
from stress.workload.plan import Plan
from stress.workload.tokens import page_tokens


def warm_of(config: Config, plan: Plan, dp_rank: int) -> Warm | None:
    """What the external store holds when the run starts; None where it is empty or there is none."""
    if not (config.linker.enabled and config.linker.warm):
        return None
    page_size = config.pool.page_size
    return Warm(
        prefixes=lambda own: plan.warm_prefixes(dp_rank if own else None),
        tokens_of=lambda keys: page_tokens(keys, page_size, 0, len(keys) * page_size),
    )


def planned_requests(plan: Plan, dp_rank: int) -> list[PlannedRequest]:
    """A DP rank's share of the plan, in nominal order."""
    mine = (plan.rank == dp_rank).nonzero()[0]
    columns = (
        plan.after,
        plan.wait_us,
        plan.start_us,
        plan.prompt_tokens,
        plan.output_tokens,
        plan.cancel,
        plan.cancel_tokens,
    )
    values = [column[mine].tolist() for column in columns]
    return [PlannedRequest(*fields) for fields in zip(mine.tolist(), *values, strict=True)]
