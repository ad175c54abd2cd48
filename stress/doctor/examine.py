"""All checks of this machine, and what follows from them: which launchers, devices and targets will run here.

Torch and ray are imported in processes of their own, at the same time. Nothing is installed, joined or left behind.
"""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from stress.doctor import machine
from stress.doctor.check import Check, worst_state
from stress.doctor.ray_checks import ask_ray, cluster_check, ray_check, visibility_check
from stress.doctor.target_checks import IMPORTS, extra_check, pip_check
from stress.doctor.torch_checks import ask_torch, torch_checks
from stress.manifest import commit, versions

SCHEMA = 1
OLDEST_PYTHON = (3, 10)
_PROCESSES = ("python", "torch", "gloo", "loopback", "memory", "open files", "processes")
# A launcher does not run when one of these checks is broken.
_NEEDED = {"inline": ("python", "torch"), "local": _PROCESSES, "ray": (*_PROCESSES, "ray", "ray cluster")}


def examine(environment: Mapping[str, str] | None = None) -> list[Check]:
    """Every check, in the order in which to read them; some seconds."""
    environment = os.environ if environment is None else environment
    with ThreadPoolExecutor(2) as pool:
        torch, ray = pool.submit(ask_torch), pool.submit(ask_ray)
        here = [
            machine.cores(),
            machine.memory(),
            machine.shared_memory(),
            machine.open_files(),
            machine.processes(),
            machine.loopback(),
            machine.run_folder(),
            machine.cache_folder(),
            pip_check(),
            *(extra_check(extra) for extra in IMPORTS),
        ]
        software = [python_check(), *torch_checks(torch.result(), environment), ray_check(ray.result())]
    return [*software, cluster_check(environment), visibility_check(environment), *here]


def python_check(version: Sequence[int] = sys.version_info) -> Check:
    """The interpreter, and what is installed beside torch and ray."""
    old = tuple(version[:2]) < OLDEST_PYTHON
    found = versions()
    return Check(
        name="python",
        state="broken" if old else "ok",
        found=f"{platform.python_version()}, kvstress {found['kvstress'] or 'not installed, run from its tree'}",
        means="kvstress is written for newer ones" if old else "",
        cure=f"use Python {OLDEST_PYTHON[0]}.{OLDEST_PYTHON[1]} or newer" if old else "",
        values={"versions": found, "commit": commit()},
    )


def what_runs(checks: Sequence[Check]) -> dict[str, bool]:
    """By launcher, `cuda` (layout.device), `fetched_targets` (SGLang's) and `fetched_vllm_targets`: whether it will."""
    broken = {check.name for check in checks if check.state == "broken"}
    there = {check.name: check for check in checks}
    runs = {launcher: broken.isdisjoint(needed) for launcher, needed in _NEEDED.items()}
    devices = there["devices"].values["devices"] if "devices" in there else []
    can_fetch = all(there[name].state == "ok" for name in ("pip", "target cache"))
    imports = {extra: there[f"{extra} needs"].state == "ok" for extra in IMPORTS}
    return runs | {
        "cuda": bool(devices),
        "fetched_targets": runs["inline"] and can_fetch and imports["sglang"],
        "fetched_vllm_targets": runs["inline"] and can_fetch and imports["vllm"],
    }


def document_of(checks: Sequence[Check]) -> dict[str, Any]:
    """The document of --json."""
    return {"schema": SCHEMA, "state": worst_state(checks), "runs": what_runs(checks), "checks": list(checks)}
