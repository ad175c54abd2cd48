"""What the values of an arm must hold beside its target and its strategy: which faults it can have, and pools alone.

Each check yields lines `PATH: what; the cure`, for stress.config_checks.
"""

from __future__ import annotations

from collections.abc import Iterator

from stress.config_schema import Arm, Config
from stress.fault_catalogue import FAULTS
from stress.fault_forms import facts_of
from stress.fault_name import parse_faults
from stress.target.name import TargetError, mode_of, parse_target
from stress.target.project import PROJECTS


def broken_faults(config: Config, name: str, arm: Arm, project: str) -> Iterator[str]:
    """A named fault is in the reference, in the client of a release's pool, or around a release's own objects where
    our loop calls them; in no tree. `arm.fault` parses."""
    for fault, ranks in parse_faults(arm.fault).chosen:
        if facts_of(fault, project) is None:
            home = FAULTS[fault].project
            yield (
                f"arms.{name}.fault: {fault} is a fault of {whose(fault)} and the target is {arm.target}; "
                f"{_cure(home, project)}"
            )
        elif mode := mode_of(arm.target):
            yield (
                f"arms.{name}.fault: {fault} acts where our own loop decides, and {arm.target} is driven by its "
                f"{mode}; name one such as {project}=={PROJECTS[project].example} as the target"
            )
        if ranks is not None and max(ranks) >= config.layout.tp_size:
            yield (
                f"arms.{name}.fault: {fault}@{max(ranks)}: the ranks are 0 to {config.layout.tp_size - 1} "
                "(layout.tp_size)"
            )


def whose(fault: str) -> str:
    """Whose fault it is in the first place, in words."""
    home = FAULTS[fault].project
    if home == "reference":
        return "the reference"
    return f"a client of {home}" if PROJECTS[home].pool_only else home


def _cure(home: str, project: str) -> str:
    if home == "reference":
        return f"leave it out, or name an edited tree ({project}==V+EDIT)"
    return f"name one such as {home}=={PROJECTS[home].example} as the target"


def broken_pool_only(config: Config, name: str, arm: Arm, project: str) -> Iterator[str]:
    """A pool alone has nothing that loads or stores."""
    if _is_pool(project) and config.linker.enabled:
        yield (
            f"linker.enabled: true, and {arm.target} (arms.{name}) is a pool of pages that has no linker; "
            "set linker.enabled=false"
        )


def have_no_window(config: Config) -> bool:
    """Whether all arms are pools alone, so that nothing is said by sizes that a window needs."""
    return bool(config.arms.named) and all(map(_has_no_window, config.arms.named.values()))


def _has_no_window(arm: Arm) -> bool:
    try:
        return _is_pool(parse_target(arm.target).project)
    except TargetError:
        return False  # which is said where arms are looked at


def _is_pool(project: str) -> bool:
    return project != "reference" and PROJECTS[project].pool_only
