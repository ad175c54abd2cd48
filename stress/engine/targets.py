"""Which engine an arm names: `reference`, or the folder of a real tree.

A target is resolved to a folder once, by the driver; a rank gets it as `path:DIR`. Engines are imported when they
are built: the reference needs no tree, and a tree needs no reference.
"""

from __future__ import annotations

from pathlib import Path

from stress.engine.contract import Engine, Warm


def build_engine(config, arm, device: str, warm: Warm | None) -> Engine:
    """The engine of one rank. `config`, `arm`: stress.config records. Raises ValueError for an unknown target."""
    if arm.target == "reference":
        from stress.engine.reference import build_reference

        return build_reference(config, arm, device, warm)
    if arm.target.startswith("path:"):
        from stress.engine.sglang.build import build_sglang

        return build_sglang(config, Path(arm.target.removeprefix("path:")), device, warm)
    raise ValueError(f"target {arm.target!r}: there is none of that name; use 'reference'")
