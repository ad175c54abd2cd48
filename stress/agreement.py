"""`python -m stress.agreement ROOT CORE SEEDS [OVERRIDE...]`: the reference and a tree, operation by operation.

The reference, with the habits of the tree's release, serves `smoke` on one rank, and the tree executes each operation
behind it (stress.engine.lockstep). CORE: python | rust; SEEDS: as 1-20; OVERRIDE: as --set takes. One JSON document on
stdout, a process a tree. Exit 0: every seed agrees. 1: one does not. 2: an error that the user can mend, in one line
and as {"error": "..."}. 3: any other.
"""

from __future__ import annotations

import sys
import traceback
from pathlib import Path
from typing import Any

import msgspec

from stress.config import load_config
from stress.engine.lockstep import LockstepEngine
from stress.engine.reference import build_reference
from stress.engine.reference.habits import HABITS, Habits
from stress.engine.sglang.build import build_sglang
from stress.engine.sglang.tree_import import load_tree
from stress.rank import Rank
from stress.result import RankSpec
from stress.seed_range import seed_range
from stress.share import warm_of
from stress.workload.plan import plan_of

# One rank that talks to nobody, and no checks: what is compared here needs none. The workload is the one that
# docs/agreement.md speaks of.
SHAPE = (
    "layout.tp_size=1",
    "layout.dp_size=1",
    "linker.store=memory",
    "check.level=0",
    "check.require=[]",
    "workload.fork_rate=0",
    "workload.cancel_rate=0.05",
    "workload.requests=400",
    "serving.chunk_tokens=1024",
    "pool.swa_pages=28",
)

USAGE = "python -m stress.agreement ROOT CORE SEEDS [OVERRIDE...]"
AGREED, DISAGREED, MISTAKE, INFRASTRUCTURE = 0, 1, 2, 3
SEEN = ("load_back", "node_split", "tombstone_recovered")


def agreement(root: Path, core: str, seeds: range, overrides: list[str]) -> dict[str, Any]:
    """Runs the seeds one after the other. Raises ValueError: one line with the cure."""
    tree = load_tree(root, core)
    habits = habits_of(tree.version)
    runs = [_run(root, core, habits, seed, overrides) for seed in seeds]
    return {"version": tree.version, "core": core, "agreed": sum(run["agrees"] for run in runs), "runs": runs}


def habits_of(version: str) -> Habits:
    if version not in HABITS:
        raise ValueError(
            f"sglang {version}: its habits are not known to the reference; compare one of {', '.join(HABITS)}"
        )
    return HABITS[version]


def _run(root: Path, core: str, habits: Habits, seed: int, overrides: list[str]) -> dict[str, Any]:
    config = load_config("smoke", [*SHAPE, *overrides], seed=seed)
    plan = plan_of(config, ranks=1)
    warm = warm_of(config, plan, 0)
    arm = config.arms.named["patched"]
    tree = build_sglang(config, root, "cpu", warm, core)
    engine = LockstepEngine(build_reference(config, arm, "cpu", warm, habits), tree)
    spec = RankSpec(config=config.to_dict(), arm="patched", rank=0, ranks=1, seed=seed)
    result = _drive(Rank(spec, config, plan, engine, lambda line: None))
    parted = engine.parted
    return {
        "seed": seed,
        "agrees": parted is None and result.status == "finished",
        "operations": engine.number,
        "status": result.status,
        "error": "" if result.first_error is None else result.first_error.traceback[-2000:],
        "parted_at": None if parted is None else parted.number,
        "parted": None if parted is None else parted.describe(),
        "requests": result.requests_finished,
        "seen": {name: engine.marks().get(name, 0) for name in SEEN},
    }


def _drive(rank: Rank):
    exchanges = rank.exchanges()
    payload = next(exchanges)
    while True:
        try:
            payload = exchanges.send([payload])
        except StopIteration as end:
            return end.value


def main(arguments: list[str]) -> int:
    """Prints the document; returns the exit code."""
    try:
        if len(arguments) < 3:
            raise ValueError(f"{len(arguments)} arguments; write {USAGE}")
        root, core, seeds, *overrides = arguments
        document = agreement(Path(root), core, seed_range(seeds), overrides)
        code = AGREED if all(run["agrees"] for run in document["runs"]) else DISAGREED
    except ValueError as error:
        document, code = {"error": str(error)}, MISTAKE
        print(f"stress.agreement: {error}", file=sys.stderr)
    except Exception:
        traceback.print_exc()
        return INFRASTRUCTURE
    sys.stdout.buffer.write(msgspec.json.encode(document))
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
