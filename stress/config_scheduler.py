"""What of a configuration is for targets whose own scheduler decides, and what such a target has none of."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from stress.config_schema import Config, Injections, Linker, Serving
from stress.target.name import mode_of

# What the target's scheduler alone heeds, by table.
_OWN = {
    "serving": (Serving(), ("policy", "prompt_chunk_tokens")),
    "linker": (Linker(), ("workers", "on_failed_load")),
    "injections": (Injections(), Injections.__struct_fields__),
}
_EXAMPLE = "vllm-scheduler==0.33.0"


def broken_scheduler(config: Config) -> Iterator[str]:
    """`PATH: what; the cure`, one line each."""
    given = list(_given(config))
    for arm, record in config.arms.named.items():
        if mode_of(record.target) != "scheduler":
            for path, value in given:
                yield (
                    f"{path}: {value!r} is for a target whose own scheduler decides, and arms.{arm} is "
                    f"{record.target}; leave it out, or name one, as in {_EXAMPLE}"
                )
            continue
        if not config.linker.enabled:
            for path, value in given:
                if not path.startswith("serving."):
                    yield (
                        f"{path}: {value!r} is of what a connector is told, and arms.{arm} has none; set "
                        "linker.enabled=true"
                    )
        if config.workload.ballast:
            yield (
                f"workload.ballast: {config.workload.ballast} is lent past the scheduler, and arms.{arm} is "
                f"{record.target}, which lends all by its own; set it to 0"
            )


def _given(config: Config) -> Iterator[tuple[str, object]]:
    """Keys of _OWN that are not at their defaults, and their values."""
    for table, (default, keys) in _OWN.items():
        values = msgspec.structs.asdict(getattr(config, table))
        for key in keys:
            if values[key] != getattr(default, key):
                yield f"{table}.{key}", values[key]
