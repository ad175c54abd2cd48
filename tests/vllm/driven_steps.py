"""Run as a script: the smallest sequence in which a request loses its slots in the step that gave them, step by step.

    python tests/vllm/driven_steps.py ROOT [priority | fcfs | rolled-back | all]

ROOT: the folder of a vLLM tree. 10 blocks of 16 tokens, 64 tokens a step, 32 of one prompt. A has 120 tokens and is to
be served last, B has 32 and comes when 64 of A are computed. Prints one JSON document: `steps`, each with the positions
of A and B that its pass computes and who is preempted, and `findings`. rolled-back: by priority, and what a preempted
request has published and not computed is taken out of the prefix map. all: a document of each, by its name.
"""

import json
import sys
from pathlib import Path

import numpy as np
from driven_rank import watched

from stress.check.shadow import Ledger
from stress.config_schema import Config, Linker, Pool, Serving
from stress.engine.contract import RequestSpec
from stress.engine.vllm.driven_build import build_driven
from stress.operator import Operator

BLOCKS, PAGE = 10, 16
A, B = 0, 1
POLICIES = ("priority", "fcfs", "rolled-back")
PROMPTS = {A: 120, B: 32}
OUTPUT = 4


def spec(rid: int) -> RequestSpec:
    pages = -(-(PROMPTS[rid] + OUTPUT) // PAGE)
    first = 1000 * (rid + 1)
    return RequestSpec(
        rid=rid,
        namespace=0,
        prompt_tokens=PROMPTS[rid],
        output_tokens=OUTPUT,
        keys=np.arange(first, first + pages, dtype=np.int64),
        tokens=lambda lo, hi: np.arange(first + lo, first + hi, dtype=np.int64),
    )


def build(root: str, policy: str) -> tuple[Operator, Ledger]:
    config = Config(
        name="steps",
        pool=Pool(page_size=PAGE, full_pages=BLOCKS, swa_pages=0, groups=["full"]),
        serving=Serving(
            policy="fcfs" if policy == "fcfs" else "priority",
            chunk_tokens=64,
            prompt_chunk_tokens=32,
            draft_tokens=0,
            accept_mean=1,
            max_running=16,
        ),
        linker=Linker(enabled=False),
    )
    engine = build_driven(config, Path(root))
    if policy == "rolled-back":
        roll_back(engine)
    return watched(engine)


def roll_back(engine) -> None:
    """Of a request that is preempted, blocks beyond what passes have computed lose their hashes."""
    preempt, manager = engine.scheduler._preempt_request, engine.calls.manager

    def rolling_back(request, *more, **named):
        computed = engine.committed(int(request.request_id)) // PAGE
        for table in manager.coordinator.single_type_managers:
            for block in table.req_to_blocks[request.request_id][computed:]:
                manager.block_pool._maybe_evict_cached_block(block)
        return preempt(request, *more, **named)

    engine.scheduler._preempt_request = rolling_back


def submit(operator: Operator, rid: int, priority: int) -> None:
    operator.open(spec(rid))
    operator.submit(rid, priority)


def step(operator: Operator, left: set[int]) -> dict:
    """One step, of which everything is accepted; who ends is no longer in `left`."""
    planned = operator.schedule()
    operator.commit([(row.rid, row.tokens) for row in planned.rows])
    for rid in operator.update([(row.rid, int(row.samples)) for row in planned.rows]):
        operator.close(rid)
        left.remove(rid)
    computed = {"AB"[row.rid]: [row.start, row.start + row.tokens] for row in planned.rows}
    return {"computes": computed, "preempted": ["AB"[rid] for rid in planned.preempted]}


def main(root: str, policy: str = "priority") -> dict:
    if policy == "all":
        return {each: main(root, each) for each in POLICIES}
    operator, ledger = build(root, policy)
    left = {A, B}
    submit(operator, A, 5)
    steps = [step(operator, left)]
    while steps[-1]["computes"]["A"][1] < 64:
        steps.append(step(operator, left))
    submit(operator, B, 1)
    while left and len(steps) < 100:
        steps.append(step(operator, left))
    operator.drain()
    return {
        "steps": steps,
        "left": len(left),
        "findings": [
            [finding.rule, finding.operation, finding.noticed, finding.message] for finding in ledger.kept
        ],
        "crashed": ledger.crashed,
    }


if __name__ == "__main__":
    print(json.dumps(main(*sys.argv[1:])))
