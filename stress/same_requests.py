"""Whether two runs had the same requests, and what else differs between their configurations.

The requests of a run follow from the keys in REQUEST_KEYS and what its trace held; a pool or a check may differ, and
is then said. Targets are meant to differ; how operations were recorded and how long was waited changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

# Beside the seed and the whole table [workload]: how requests fall to ranks, and when each is planned to start.
REQUEST_KEYS = (
    "layout.tp_size",
    "layout.dp_size",
    "serving.step_base_ms",
    "serving.accept_mean",
    "serving.prefill_tokens_per_s",
)
_IGNORED = ("name", "arms", "record", "deadlines")

Difference = tuple[str, Any, Any]
"""(key, its value in the base's run, in the test's)"""


def other_requests(base: dict[str, Any], test: dict[str, Any]) -> Difference | None:
    """The first key by which two manifests say that the runs had other requests; None: they had the same."""
    configured = list(_differences(base["config"], test["config"]))
    for key, *values in configured:
        if key == "seed" or key in REQUEST_KEYS or key.startswith("workload."):
            return (key, *values)
    planned = base.get("workload") or {}, test.get("workload") or {}
    for key in sorted({*planned[0], *planned[1]}):
        if planned[0].get(key) != planned[1].get(key):
            return (f"the planned {key}", planned[0].get(key), planned[1].get(key))
    return None


def other_settings(base: dict[str, Any], test: dict[str, Any]) -> list[str]:
    """What differs beside the arms between two runs of the same requests, as `KEY: ... and ...`."""
    differences = list(_differences(base["config"], test["config"]))
    differences += [
        (f"version of {name}", base["versions"].get(name), test["versions"].get(name))
        for name in sorted({*base["versions"], *test["versions"]})
    ]
    differences.append(("commit of kvstress", base.get("commit"), test.get("commit")))
    return [f"{key}: {ours} and {theirs}" for key, ours, theirs in differences if ours != theirs]


def _differences(base: dict[str, Any], test: dict[str, Any], at: str = "") -> Iterator[Difference]:
    """Keys of two configurations, as TOML-shaped data, in their order."""
    for key in dict.fromkeys([*base, *test]):
        if not at and key in _IGNORED:
            continue
        ours, theirs = base.get(key), test.get(key)
        if isinstance(ours, dict) and isinstance(theirs, dict):
            yield from _differences(ours, theirs, f"{at}{key}.")
        elif ours != theirs:
            yield f"{at}{key}", ours, theirs
