"""Run as a script: a request whose load has failed, alone on an idle scheduler, step by step.

    python tests/vllm/failed_load_steps.py ROOT [failed | well | released]

ROOT: the folder of a vLLM tree. 10 blocks of 16 tokens, one group of full attention. A, of 97 tokens, is computed and
stored in the host's memory; the prefix cache is emptied, and B comes with the same prompt: 6 blocks of it are loaded.
In `failed` none of them comes; in `well` all do; `released` is `failed` where a request that loses all its blocks no
longer reserves those that it has still to compute. Prints one JSON document: `steps` of B that computed something, as
[start, end]; `waits`: steps since in which nothing was scheduled; `free`: blocks at the end.
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

BLOCKS, PAGE, PROMPT, OUTPUT = 10, 16, 97, 2
A, B = 0, 1
PATIENCE = 50  # steps


def spec(rid: int) -> RequestSpec:
    return RequestSpec(
        rid=rid,
        namespace=0,
        prompt_tokens=PROMPT,
        output_tokens=OUTPUT,
        keys=np.arange(1, 1 + -(-(PROMPT + OUTPUT) // PAGE), dtype=np.int64),
        tokens=lambda lo, hi: np.arange(1 + lo, 1 + hi, dtype=np.int64),
    )


def build(root: str, how: str) -> tuple[Operator, Ledger]:
    config = Config(
        name="steps",
        pool=Pool(page_size=PAGE, full_pages=BLOCKS, swa_pages=0, groups=["full"]),
        serving=Serving(chunk_tokens=128, draft_tokens=0, accept_mean=1, max_running=16),
        linker=Linker(delay_ms=0, on_failed_load="recompute"),
    )
    engine = build_driven(config, Path(root))
    if how != "well":
        fails = {(B, 0)}  # its first load, from the first block on
        engine.offload._injections.failed_from = lambda rid, loads, pages: (
            0 if (rid, loads) in fails else None
        )
        engine.offload._injections.told_by_request = lambda rid, loads: False
    if how == "released":
        release(engine)
    return watched(engine)


def release(engine) -> None:
    """A request that has just lost all its blocks reserves none for what it still has to compute."""
    scheduler, manager = engine.scheduler, engine.calls.manager
    free = manager.free

    def freeing(request):
        scheduler._inflight_prefills.discard(request)
        return free(request)

    manager.free = freeing


def step(operator: Operator) -> list[int] | None:
    """One step; the positions that it computes of the one request there is."""
    planned = operator.schedule()
    operator.now_us += 1000
    if planned.rows:
        operator.commit([(row.rid, row.tokens) for row in planned.rows])
    for rid in operator.update([(row.rid, int(row.samples)) for row in planned.rows]):
        operator.close(rid)
    return [planned.rows[0].start, planned.rows[0].start + planned.rows[0].tokens] if planned.rows else None


def serve(operator: Operator, rid: int) -> tuple[list[list[int]], int]:
    """What is computed of the request, and for how many steps nothing was since."""
    operator.open(spec(rid))
    operator.submit(rid, 0)
    computed, waits = [], 0
    while waits < PATIENCE and (not computed or computed[-1][1] < PROMPT + OUTPUT - 1):
        now = step(operator)
        computed += [now] if now else []
        waits = 0 if now else waits + 1
    return computed, waits


def main(root: str, how: str = "failed") -> dict:
    operator, ledger = build(root, how)
    first, _ = serve(operator, A)
    for _ in range(4):
        step(operator)  # what is left of A is stored
    operator.drain()  # the blocks lose their hashes; the host's stay
    second, waits = serve(operator, B)
    return {
        "first": first,
        "steps": second,
        "waits": waits,
        "free": operator._engine.calls.pool.get_num_free_blocks(),
        "findings": [[finding.rule, finding.operation, finding.message] for finding in ledger.kept],
        "crashed": ledger.crashed,
    }


if __name__ == "__main__":
    print(json.dumps(main(*sys.argv[1:])))
