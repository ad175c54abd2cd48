"""What a rank-step costs on real SGLang, against the same upstream calls made in a bare loop.

    python tests/benchmark/sglang_cost.py [--target sglang==0.5.23] [--requests 300] [--rounds 3]

First a rank of `smoke` runs with everything on (serving loop, probe, ledger at level 2) and its operations are kept;
then a fresh engine executes the same list, batched the same way, with nothing around it. Both in one process, CPU
time, plan and import not counted. The ratio is the price of the harness.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "model"))

import torch

from stress.config import load_config
from stress.engine.sglang.build import build_sglang
from stress.operation import Kind, Operation
from stress.rank import Rank
from stress.rank_parts import request_spec
from stress.result import OperationBlock, RankSpec
from stress.share import planned_requests, warm_of
from stress.target.store import resolve
from stress.workload.plan import plan_of

SHAPE = [
    "layout.tp_size=1",
    "layout.dp_size=1",
    "check.require=[]",
    "linker.store=memory",
    "record.operations=all",
]


def drive(rank: Rank) -> float:
    """CPU seconds of a whole rank, alone."""
    start_s = time.process_time()
    generator = rank.exchanges()
    payloads = [next(generator)]
    try:
        while True:
            payloads = [generator.send(payloads)]
    except StopIteration:
        return time.process_time() - start_s


def bare(engine, operations: list[Operation], spec_of) -> float:
    """CPU seconds of the same calls and nothing else. Requests are opened before they are admitted first."""
    arrived: dict[int, tuple] = {}
    start_s = time.process_time()
    for operation in operations:
        engine.now_us = operation.at_us
        kind, rows = operation.kind, operation.rows
        if kind is Kind.ADMIT:
            rid, spare = rows[0]
            if rid not in arrived:
                arrived[rid] = rows[0]
                engine.open(spec_of(rid))
            engine.admit(rid, spare)
        elif kind in (Kind.EXTEND, Kind.RESERVE, Kind.COMMIT):
            getattr(engine, kind.value)(list(rows))
        elif kind is Kind.EVICT_WINDOWS:
            engine.evict_windows([rid for rid, _ in rows])
        elif kind in (Kind.CHECKPOINT, Kind.FINISH, Kind.ABORT, Kind.RETRACT):
            getattr(engine, kind.value)(rows[0][0])
        else:
            getattr(engine, kind.value)()
    return time.process_time() - start_s


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--target", default="sglang==0.5.23")
    parser.add_argument("--config", default="smoke")
    parser.add_argument("--requests", type=int, default=300)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    tree = resolve(arguments.target)
    # No retraction: a retracted request comes back with another prompt, which the recorded list does not carry.
    room = ["pool.swa_pages=200", "pool.full_pages=1200"] if arguments.config == "smoke" else []
    config = load_config(arguments.config, [*SHAPE, *room, f"workload.requests={arguments.requests}"])
    arm = next(iter(config.arms.named))
    plan = plan_of(config, ranks=1)
    spec = RankSpec(config=config.to_dict(), arm=arm, rank=0, ranks=1, seed=config.seed)
    warm = warm_of(config, plan, 0)
    ratios = []
    for _ in range(arguments.rounds):
        operations: list[Operation] = []

        def keep(line, operations=operations):
            if isinstance(line, OperationBlock):
                operations.extend(line.operations)

        rank = Rank(spec, config, plan, build_sglang(config, tree, "cpu", warm), keep)
        whole_s = drive(rank)
        prompts = {request.rid: request for request in planned_requests(plan, 0)}

        def spec_of(rid, prompts=prompts):
            return request_spec(plan, rid, prompts[rid].prompt_tokens, prompts[rid].output_tokens)

        bare_s = bare(build_sglang(config, tree, "cpu", warm), operations, spec_of)
        ratios.append(whole_s / bare_s)
        print(
            f"{len(operations)} operations: whole {whole_s:.2f} s, bare {bare_s:.2f} s, ratio {ratios[-1]:.2f}"
        )
    print(f"{arguments.target}: median ratio {statistics.median(ratios):.2f}")


if __name__ == "__main__":
    main()
