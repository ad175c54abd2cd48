"""What the source of a vLLM tree alone tells, before any rank imports it: whether a run's injections have a road in it.

A worker tells a failed load by its blocks, which the scheduler takes with one group of layers alone, or in newer
releases by its request. Nothing here is executed.
"""

from __future__ import annotations

from pathlib import Path

from stress.config_schema import Config, ConfigError
from stress.target.name import Target

_OFFLOAD = Path("vllm/v1/simple_kv_offload/manager.py")
_OUTPUTS = Path("vllm/v1/outputs.py")
_BY_REQUEST = b"failed_recving"


def refuse_unfit_run(root: Path, target: Target, config: Config) -> None:
    """Raises ConfigError for a run that `target`, driven by its scheduler, can't make. `root`: the folder that holds
    `vllm/`."""
    if not config.linker.enabled:
        return
    if not (root / _OFFLOAD).is_file():
        raise ConfigError(
            f"linker.enabled: {target} has no CPU offload; set it to false, or use vLLM 0.20 or later"
        )
    if (
        config.injections.failed_loads
        and len(config.pool.groups) != 1
        and _BY_REQUEST not in (root / _OUTPUTS).read_bytes()
    ):
        raise ConfigError(
            f"injections.failed_loads: {config.injections.failed_loads} is told by blocks in {target}, which takes it "
            "with one group of layers alone; give pool.groups one, or set it to 0"
        )
