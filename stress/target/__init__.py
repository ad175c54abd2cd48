"""Targets: names of real trees, fetched, edited and kept in a cache folder. Knows neither torch nor ray.

`resolve(text)` gives the folder that holds `sglang/`. The driver asks once; a rank gets the folder.
"""

from stress.target.name import Target, TargetError, TargetUnavailable, parse_target
from stress.target.store import add_target, list_targets, remove_target, resolve

__all__ = [
    "Target",
    "TargetError",
    "TargetUnavailable",
    "add_target",
    "list_targets",
    "parse_target",
    "remove_target",
    "resolve",
]
