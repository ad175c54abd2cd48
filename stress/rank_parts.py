"""What a rank is built of, from its spec alone: configuration, the plan's share, engine, faults, group and probe.

All ranks of an arm build the same plan from the same seed, so nothing of it is ever sent. The ranks of an attention-TP
group serve the same requests: a plan's share is a DP rank's, and so is what its store is warmed with. Under a dry
fault the log watches for the trigger and the engine stays whole. Built in the order engine, ledger, group, probe: a
group is told lookups by the engine and tells the ledger, the probe says what the group observes.
"""

from __future__ import annotations

from typing import NamedTuple

from allocator.faults.log import FaultLog, with_faults
from stress.check.shadow import Ledger
from stress.config import Config, from_dict
from stress.engine.contract import Engine, RequestSpec
from stress.engine.scheduling import schedules
from stress.engine.targets import build_engine
from stress.fault_name import parse_faults
from stress.operator import Operator
from stress.probe import Probe
from stress.result import RankSpec
from stress.serving.acceptance import Acceptance
from stress.serving.ballast import Ballast
from stress.serving.driven_loop import DrivenLoop
from stress.serving.loop import ServingLoop
from stress.serving.priority import Priorities
from stress.serving.state import ServingState
from stress.share import warm_of
from stress.tp_faults import RANK_FAULTS
from stress.tp_group import TPGroup
from stress.workload.plan import Plan, build_plan
from stress.workload.tokens import page_tokens

# Operations that are checked together; the last ones of a rank that is killed outright are lost to the checks.
LANDS_EVERY = 64


class RankParts(NamedTuple):
    """What a spec names, built: `faults` are told the operation, and are in the engine already."""

    config: Config
    plan: Plan
    engine: Engine
    faults: FaultLog


def build_parts(spec: RankSpec) -> RankParts:
    """Raises ValueError, one line, where the spec's engine can't be built."""
    config = from_dict(spec.config)
    arm = config.arms.record(spec.arm)
    layout, page_size = config.layout.of(spec.ranks), config.pool.page_size
    plan = build_plan(
        config.workload, config.serving, seed=spec.seed, page_size=page_size, ranks=layout.dp_size
    )
    warm = warm_of(config, plan, layout.dp_rank(spec.index))
    named = parse_faults(arm.fault)
    mine = named.of_rank(spec.rank)
    faults = FaultLog(() if named.dry else mine, mine if named.dry else ())
    engine = build_engine(config, arm, spec.device, warm, spec.tree, faults, spec.rank)
    return RankParts(config, plan, engine, faults)


def join_group(spec: RankSpec, parts: RankParts, ledger: Ledger) -> TPGroup | None:
    """Its attention-TP group, where that has other members; what these agree on needs an exchange every step."""
    layout, engine = parts.config.layout.of(spec.ranks), parts.engine
    if layout.attn_tp_size == 1:
        return None
    agreed = engine.join(layout.attn_tp_size) if layout.exchange_ms == 0 else None
    group = with_faults(TPGroup, RANK_FAULTS, parts.faults)
    return group(layout, spec.index, agreed, engine.lookup_keys, ledger)


def build_probe(parts: RankParts, ledger: Ledger, group: TPGroup | None) -> Probe | None:
    """None: level 0 watches nothing."""
    check = parts.config.check
    if not check.level:
        return None
    return Probe(
        parts.engine,
        ledger,
        check.content_checked,
        check.bytes_per_token,
        closely=check.closely,
        lands_every=1 if check.on_finding == "stop" else LANDS_EVERY,
        tells_clock=True,
        also=group.observes if group is not None else frozenset(),
    )


def build_ballast(parts: RankParts, operator: Operator) -> Ballast:
    """Requests behind the plan's own that hold a share of the pool."""
    plan = parts.plan
    return Ballast(
        operator,
        parts.config.workload.ballast,
        first_rid=plan.n,
        tokens_of=lambda keys, lo, hi: page_tokens(keys, plan.page_size, lo, hi),
    )


def build_loop(
    spec: RankSpec, config: Config, engine: Engine, state: ServingState
) -> ServingLoop | DrivenLoop:
    """The serving loop over `state`; which draft tokens are accepted is drawn from the arm's seed, as is who is to be
    served first by an engine that schedules by itself."""
    serving = config.serving
    accept_millionths = round(serving.accept_mean * 1_000_000)
    acceptance = Acceptance(spec.seed, serving.draft_tokens, accept_millionths)
    if schedules(engine):
        return DrivenLoop(state, acceptance, Priorities(spec.seed, serving.policy))
    return ServingLoop(state, acceptance)


def request_spec(plan: Plan, rid: int, prompt_tokens: int, output_tokens: int) -> RequestSpec:
    """What the engine is told of a request of the plan; its tokens and keys are made when they are asked for."""
    namespace = int(plan.namespace[rid])
    return RequestSpec(
        rid=rid,
        namespace=namespace,
        prompt_tokens=prompt_tokens,
        output_tokens=output_tokens,
        keys=plan.keys(rid),
        tokens=lambda lo, hi: plan.tokens(rid, lo, hi),
        session=int(plan.session[rid]),
        texts=plan.texts(rid) if namespace else None,
    )
