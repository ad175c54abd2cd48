"""What a run without a verdict has shown so far: its manifest and its ranks' files, as a verdict document.

The document is made by `make_verdict` like that of a run that was ended early: unknown, with every rank that has
written anything, up to its last heartbeat.
"""

from __future__ import annotations

from typing import Any

from stress.arm_layout import arm_ranks
from stress.command.run_record import UNDER_WAY
from stress.config_schema import Config
from stress.lost_rank import result_from_file
from stress.manifest import read_manifest
from stress.record import RunDirectory
from stress.result import RankResult, RankSpec
from stress.verdict import make_verdict

NO_VERDICT = "There is no verdict: the run goes on, or was killed. This is what its ranks have written."


def is_unfinished(run: RunDirectory) -> bool:
    """Whether there is no verdict.json, or the one that stands while a run goes on."""
    if not (run.path / "verdict.json").exists():
        return True
    reasons = run.read_verdict().get("reasons")
    return isinstance(reasons, list) and UNDER_WAY in reasons


def unfinished_document(run: RunDirectory) -> dict[str, Any]:
    """The verdict document of what is there. Raises RunDirectoryError where the manifest can't be read."""
    manifest, config = read_manifest(run.path)
    ranks = {arm: _arm(run, config, arm) for arm in config.arms.named}
    results = {arm: found for arm, found in ranks.items() if found}
    return make_verdict(
        config,
        results,
        arms=list(results),
        launcher=manifest.get("launcher", "unknown"),
        ended_early=NO_VERDICT,
        workload=manifest.get("workload"),
    )


def _arm(run: RunDirectory, config: Config, arm: str) -> list[RankResult]:
    """The ranks of an arm that have a file, in order."""
    layout, results = config.layout, []
    ranks = arm_ranks(config, arm)
    for index, rank in enumerate(ranks):
        if not run.rank_path(arm, rank).exists():
            continue
        spec = RankSpec(
            config={},
            arm=arm,
            rank=rank,
            index=index,
            ranks=len(ranks),
            seed=config.seed,
            device=layout.device,
        )
        tail = run.read_rank(arm, rank)
        beat = tail.heartbeat
        why = f"last heartbeat at {beat.virtual_us / 1e6:.1f} virtual s" if beat else "no heartbeat yet"
        results.append(result_from_file(spec, tail, layout.attn_tp_size, "stopped", why))
    return results
