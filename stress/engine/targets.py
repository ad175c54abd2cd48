"""Which engine an arm names: `reference`, or a project's engine and the folder of a real tree.

A target is resolved to a folder once, by the driver, and a rank is told the folder. Engines are imported when they
are built: the reference needs no tree, and a tree needs no reference.
"""

from __future__ import annotations

from pathlib import Path

from allocator.faults.log import NO_FAULTS, FaultLog
from stress.engine.contract import Engine, Warm
from stress.target.name import mode_of, project_of


def build_engine(
    config,
    arm,
    device: str,
    warm: Warm | None,
    tree: str | None = None,
    faults: FaultLog = NO_FAULTS,
    rank: int = 0,
) -> Engine:
    """The engine of one rank. `config`, `arm`: stress.config records; `tree`: the folder that holds the package;
    `faults`: what is wrong with it, where it can have named faults; `rank`: by which its transfers
    fail (linker.faults)."""
    if tree is None:
        from stress.engine.reference import build_reference

        return build_reference(config, arm, device, warm, faults=faults, rank=rank)
    build = _BUILDERS[project_of(arm.target, Path(tree)), mode_of(arm.target)]
    return build(config, arm, Path(tree), device, warm, rank, faults)


def _sglang(config, arm, tree: Path, device: str, warm: Warm | None, rank: int, faults: FaultLog) -> Engine:
    from stress.engine.sglang.build import build_sglang

    return build_sglang(config, tree, device, warm, arm.tree_core, rank)


def _vllm(config, arm, tree: Path, device: str, warm: Warm | None, rank: int, faults: FaultLog) -> Engine:
    from stress.engine.vllm.build import build_vllm

    return build_vllm(config, arm, tree, device, warm, rank, faults)


def _vllm_scheduler(
    config, arm, tree: Path, device: str, warm: Warm | None, rank: int, faults: FaultLog
) -> Engine:
    from stress.engine.vllm.driven_build import build_driven

    return build_driven(config, tree, rank)


def _lmcache(config, arm, tree: Path, device: str, warm: Warm | None, rank: int, faults: FaultLog) -> Engine:
    from stress.engine.lmcache.build import build_lmcache

    return build_lmcache(config, arm, tree, device, warm, rank, faults)


_BUILDERS = {
    ("sglang", ""): _sglang,
    ("vllm", ""): _vllm,
    ("vllm", "scheduler"): _vllm_scheduler,
    ("lmcache", ""): _lmcache,
}
