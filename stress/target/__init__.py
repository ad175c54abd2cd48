"""Targets: names of real trees, fetched, edited and kept in a cache folder. Knows neither torch nor ray.

`resolve(text)` gives the folder that holds the project's package, such as `sglang/`. The driver asks once; a rank
gets the folder.
"""

from stress.target.name import Target, TargetError, TargetUnavailable, mode_of, parse_target, project_of
from stress.target.store import add_target, list_targets, remove_target, resolve

__all__ = [
    "Target",
    "TargetError",
    "TargetUnavailable",
    "add_target",
    "list_targets",
    "mode_of",
    "parse_target",
    "project_of",
    "remove_target",
    "resolve",
]
