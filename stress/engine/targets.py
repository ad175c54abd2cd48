"""Which engine an arm names: `reference`, or the folder of a real tree.

A target is resolved to a folder once, by the driver, and a rank is told the folder. Engines are imported when they
are built: the reference needs no tree, and a tree needs no reference.
"""

from __future__ import annotations

from pathlib import Path

from allocator.faults.log import NO_FAULTS, FaultLog
from stress.engine.contract import Engine, Warm


def build_engine(
    config,
    arm,
    device: str,
    warm: Warm | None,
    tree: str | None = None,
    faults: FaultLog = NO_FAULTS,
    rank: int = 0,
) -> Engine:
    """The engine of one rank. `config`, `arm`: stress.config records; `tree`: the folder that holds `sglang/`;
    `faults`: what is wrong with it, in the reference alone; `rank`: by which its transfers fail (linker.faults)."""
    if tree is None:
        from stress.engine.reference import build_reference

        return build_reference(config, arm, device, warm, faults=faults, rank=rank)
    if (Path(tree) / "vllm").is_dir():
        from stress.engine.vllm.build import build_vllm

        return build_vllm(config, arm, Path(tree), device, warm, rank)
    from stress.engine.sglang.build import build_sglang

    return build_sglang(config, Path(tree), device, warm, arm.tree_core, rank)
