"""What of a scheduler's step is going on: `Calls.step` says it while a method of the tree runs."""

from __future__ import annotations

import functools
from typing import Any

from stress.engine.vllm.calls import Calls


def name_steps(calls: Calls, scheduler: Any) -> None:
    """Wraps the methods that make a step's parts, on the instances."""
    manager, connector = calls.manager, scheduler.connector
    parts = [
        (manager, "get_computed_blocks", "match"),
        (manager, "allocate_slots", "slots"),
        (scheduler, "_preempt_request", "preemption"),
    ]
    if connector is not None:
        parts += [
            (connector, "build_connector_meta", "offload scan"),
            (connector, "update_connector_output", "copy done"),
        ]
    for owner, name, step in parts:
        setattr(owner, name, _in_step(calls, step, getattr(owner, name)))


def _in_step(calls: Calls, step: str, inner: Any) -> Any:
    @functools.wraps(inner)
    def call(*args, **kwargs):
        before, calls.step = calls.step, step
        try:
            return inner(*args, **kwargs)
        finally:
            calls.step = before

    return call
